"""When the loop may run a flush itself."""

from penstock.cluster import FlushPace
from penstock.testing import SimClock

LOG, OTHER_LOG = object(), object()
QUICK_S, SLOW_S = 0.0003, 0.005


def flushed(pace: FlushPace, *durations_s: float) -> None:
    for duration_s in durations_s:
        pace.plan()
        pace.ended(duration_s)


def quick_pace(clock: SimClock | None = None) -> FlushPace:
    pace = FlushPace(clock or SimClock())
    flushed(pace, QUICK_S)
    return pace


def may_run_here(pace: FlushPace, log: object = LOG) -> bool:
    pace.plan()
    answer = pace.may_run_here(log)
    pace.ended(QUICK_S)
    return answer


def test_a_disk_is_not_trusted_before_it_has_shown_to_be_quick() -> None:
    pace = FlushPace(SimClock())
    assert not may_run_here(pace)

    flushed(pace, QUICK_S)

    assert pace.is_quick
    assert may_run_here(pace)


def test_one_slow_flush_sends_the_next_to_a_thread() -> None:
    pace = quick_pace()

    flushed(pace, SLOW_S)

    assert not pace.is_quick


def test_a_slow_disk_is_trusted_again_when_it_has_been_quick_for_a_while() -> None:
    pace = quick_pace()
    flushed(pace, SLOW_S, SLOW_S)

    flushed(pace, *[QUICK_S] * 2)
    assert not pace.is_quick
    flushed(pace, *[QUICK_S] * 40)

    assert pace.is_quick


def test_a_disk_that_stalls_seldom_is_trusted_again() -> None:
    clock = SimClock()
    pace = quick_pace(clock)

    for _ in range(20):
        flushed(pace, 0.3, *[QUICK_S] * 40)
        assert pace.is_quick
        clock.advance(3_000)


def test_a_stalling_disk_holds_the_loop_for_a_tenth_of_the_time_at_most() -> None:
    clock = SimClock()
    pace = quick_pace(clock)
    flushed(pace, 2.0)

    clock.advance(9_000)
    flushed(pace, *[QUICK_S] * 100)
    assert not pace.is_quick
    clock.advance(1_000)
    flushed(pace, QUICK_S)
    assert pace.is_quick
    flushed(pace, 0.5, *[QUICK_S] * 100)

    assert not pace.is_quick
    clock.advance(5_000)
    flushed(pace, QUICK_S)
    assert pace.is_quick


def test_a_disk_that_is_slow_now_and_then_is_not_trusted() -> None:
    pace = quick_pace()

    for _ in range(20):
        flushed(pace, SLOW_S, QUICK_S)
        assert not pace.is_quick


def test_flushes_that_run_side_by_side_use_threads() -> None:
    pace = quick_pace()
    pace.plan()

    assert not may_run_here(pace)
    pace.ended(QUICK_S)

    assert may_run_here(pace)


def test_logs_that_take_turns_use_threads() -> None:
    clock = SimClock()
    pace = quick_pace(clock)
    pace.ran_here(LOG, is_leading=True)

    assert not may_run_here(pace, OTHER_LOG)
    assert may_run_here(pace, LOG)
    clock.advance(2)

    assert may_run_here(pace, OTHER_LOG)

import pytest

from penstock.clock import Clock, SystemClock
from penstock.testing import SimClock


@pytest.mark.parametrize("clock", [SystemClock(), SimClock()])
def test_clocks_tell_both_times(clock: Clock) -> None:
    assert clock.now_ms() > 1_600_000_000_000
    assert clock.steady_s() <= clock.steady_s()


def test_time_stands_still_until_it_is_advanced() -> None:
    clock = SimClock(now_ms=1_000)
    assert (clock.now_ms(), clock.steady_s()) == (1_000, 0.0)

    clock.advance(250)

    assert (clock.now_ms(), clock.steady_s()) == (1_250, 0.25)


def test_a_jump_moves_the_wall_clock_only() -> None:
    clock = SimClock(now_ms=1_000)

    clock.jump(-900)

    assert (clock.now_ms(), clock.steady_s()) == (100, 0.0)

"""Waiting for a change: what is shown, and when it ends."""

import io

import pytest

from penstock.cli.waiting import LINE_INTERVAL_S, LOOK_AGAIN_S, Look, Progress, wait_for
from penstock.errors import TimedOut, Unavailable


class FakeClock:
    """Time that passes only when someone sleeps."""

    def __init__(self) -> None:
        self.s = 100.0

    def now_ms(self) -> int:
        return round(self.s * 1000)

    def steady_s(self) -> float:
        return self.s

    def sleep(self, seconds: float) -> None:
        self.s += seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def silent() -> Progress:
    return Progress(is_silent=True)


def test_a_wait_ends_when_it_is_done() -> None:
    clock = FakeClock()
    looks = [Look(False, "1 left"), Look(True, "done")]

    wait_for(
        lambda: looks.pop(0), timeout_ms=1000, progress=silent(), clock=clock, sleep=clock.sleep
    )

    assert looks == []
    assert clock.s == 100.0 + LOOK_AGAIN_S


def test_a_wait_ends_with_its_time_also_when_nobody_answers() -> None:
    clock = FakeClock()

    def look() -> Look:
        raise Unavailable("nobody answers")

    with pytest.raises(TimedOut, match="not done after 2 s, and going on: nobody answers"):
        wait_for(look, timeout_ms=2000, progress=silent(), clock=clock, sleep=clock.sleep)


def test_a_terminal_shows_one_line_that_is_overwritten() -> None:
    stream = Terminal()

    with Progress(is_silent=False, stream=stream) as progress:
        progress.show("2 left")
        progress.show("2 left")
        progress.show("1 left")

    assert stream.getvalue() == "\r\x1b[K2 left\r\x1b[K1 left\n"


def test_a_file_gets_a_line_now_and_then() -> None:
    stream, clock = io.StringIO(), FakeClock()
    progress = Progress(is_silent=False, stream=stream, clock=clock)

    for count in (3, 2, 1):
        progress.show(f"{count} left")
        clock.sleep(LINE_INTERVAL_S / 2)

    assert stream.getvalue() == "3 left\n1 left\n"


def test_programs_are_spared() -> None:
    stream = io.StringIO()

    Progress(is_silent=True, stream=stream).show("3 left")

    assert stream.getvalue() == ""

"""When the loop stays awake for the next flush."""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.cluster import Vigil

SHORT_US, LONG_US = 100, 5_000
AWAKE_US = 300


class Turns(asyncio.AbstractEventLoop):
    """A loop that shows what it would do next, and the clock of its machine."""

    def __init__(self) -> None:
        self.next: list[Callable[..., Any]] = []
        self.now_us = 0

    def call_soon(self, callback: Callable[..., Any], *args: Any, **_: Any) -> Any:
        self.next.append(lambda: callback(*args))

    def turn(self) -> None:
        calls, self.next = self.next, []
        for call in calls:
            call()

    @property
    def is_awake(self) -> bool:
        return bool(self.next)

    def now_ms(self) -> int:
        return self.now_us // 1000

    def steady_s(self) -> float:
        return self.now_us / 1_000_000


def flushed(vigil: Vigil, loop: Turns, pause_us: int, *, times: int = 40) -> None:
    for _ in range(times):
        loop.now_us += pause_us
        vigil.flush_comes()
        loop.turn()
        vigil.flush_ran_here()


def test_the_loop_sleeps_until_flushes_have_come_quickly_for_a_while() -> None:
    loop = Turns()
    vigil = Vigil(loop, loop)

    flushed(vigil, loop, SHORT_US, times=2)
    assert not loop.is_awake
    flushed(vigil, loop, SHORT_US)

    assert loop.is_awake


def test_a_vigil_ends_when_nothing_comes() -> None:
    loop = Turns()
    vigil = Vigil(loop, loop)
    flushed(vigil, loop, SHORT_US)

    for _ in range(AWAKE_US):
        loop.turn()
        loop.now_us += 1
    assert loop.is_awake
    loop.now_us += 1
    loop.turn()

    assert not loop.is_awake


def test_a_vigil_ends_when_the_next_flush_comes_and_begins_again_after_it() -> None:
    loop = Turns()
    vigil = Vigil(loop, loop)
    flushed(vigil, loop, SHORT_US)

    vigil.flush_comes()
    loop.turn()
    assert not loop.is_awake
    vigil.flush_ran_here()

    assert loop.is_awake


def test_there_is_one_vigil_at_a_time() -> None:
    loop = Turns()
    vigil = Vigil(loop, loop)
    flushed(vigil, loop, SHORT_US)

    vigil.flush_comes()
    vigil.flush_ran_here()

    assert len(loop.next) == 1


def test_the_loop_sleeps_when_flushes_come_now_and_then() -> None:
    loop = Turns()
    vigil = Vigil(loop, loop)
    flushed(vigil, loop, SHORT_US)

    flushed(vigil, loop, LONG_US, times=4)
    loop.now_us += LONG_US
    loop.turn()
    flushed(vigil, loop, LONG_US, times=1)

    assert not loop.is_awake


def test_one_pause_does_not_end_the_habit() -> None:
    loop = Turns()
    vigil = Vigil(loop, loop)
    flushed(vigil, loop, SHORT_US)

    flushed(vigil, loop, 1_000_000, times=1)

    assert loop.is_awake


def replicated(vigil: Vigil, loop: Turns, *, answer_us: int, pause_us: int) -> None:
    for _ in range(40):
        loop.now_us += pause_us
        vigil.flush_comes()
        loop.turn()
        vigil.flush_ran_here()
        loop.now_us += answer_us
        loop.turn()
        vigil.committed()


def test_a_leader_stays_awake_for_its_followers_and_then_for_the_next_request() -> None:
    loop = Turns()
    vigil = Vigil(loop, loop)
    replicated(vigil, loop, answer_us=200, pause_us=200)
    assert loop.is_awake

    loop.now_us += AWAKE_US
    loop.turn()
    assert loop.is_awake, "the moment begins anew with the answer of the followers"
    loop.now_us += 1
    loop.turn()

    assert not loop.is_awake


def test_followers_that_take_long_are_not_waited_for() -> None:
    loop = Turns()
    vigil = Vigil(loop, loop)

    replicated(vigil, loop, answer_us=LONG_US, pause_us=SHORT_US)

    assert not loop.is_awake


def test_an_answer_of_followers_wakes_nobody_when_the_flush_ran_elsewhere() -> None:
    loop = Turns()
    vigil = Vigil(loop, loop)
    flushed(vigil, loop, SHORT_US)
    vigil.flush_comes()
    loop.turn()

    vigil.committed()

    assert not loop.is_awake

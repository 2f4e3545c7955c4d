"""Deadlines that share timers: each is kept, none comes early."""

import asyncio

import pytest

from penstock.protocols.kafka.deadlines import Deadlines


class Timers:
    """The loop's clock and timers, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.waiting: list[tuple[float, object, tuple[object, ...]]] = []
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, call: object, *arguments: object) -> None:
        self.waiting.append((when, call, arguments))

    def pass_until(self, now_s: float) -> None:
        self.now_s = now_s
        due = [each for each in self.waiting if each[0] <= now_s]
        self.waiting = [each for each in self.waiting if each[0] > now_s]
        for _, call, arguments in due:
            assert callable(call)
            call(*arguments)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    return Timers(monkeypatch)


def test_a_deadline_is_kept_and_not_early(timers: Timers) -> None:
    called: list[str] = []
    Deadlines().add(0.25, lambda: called.append("late"))

    timers.pass_until(100.249)
    assert called == []
    timers.pass_until(100.31)
    assert called == ["late"]


def test_deadlines_of_the_same_moment_share_a_timer(timers: Timers) -> None:
    deadlines = Deadlines()
    called: list[int] = []
    for number in range(5):
        deadlines.add(30.01 + number / 1000, lambda number=number: called.append(number))

    assert len(timers.waiting) == 1
    timers.pass_until(130.2)
    assert called == [0, 1, 2, 3, 4]


def test_one_that_is_removed_is_not_called_and_may_be_removed_again(timers: Timers) -> None:
    deadlines = Deadlines()
    called: list[str] = []
    removed = deadlines.add(1, lambda: called.append("removed"))
    deadlines.add(1, lambda: called.append("kept"))

    deadlines.remove(removed)
    timers.pass_until(102)
    deadlines.remove(removed)
    assert called == ["kept"]


def test_one_that_removes_another_of_its_moment_does_no_harm(timers: Timers) -> None:
    deadlines = Deadlines()
    called: list[str] = []
    dues = []
    deadlines.add(1, lambda: deadlines.remove(dues[0]))
    dues.append(deadlines.add(1, lambda: called.append("other")))

    timers.pass_until(102)
    assert called == ["other"]

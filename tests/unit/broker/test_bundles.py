"""Messages that are published at the same time go together, and each gets its own answer."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import pytest

from penstock.broker.bundles import RECORDS_MAX, Bundles
from penstock.errors import NotLeader
from penstock.ids import TopicPartition

PLACE = TopicPartition("orders", 0)
ROOM_BYTES = 1_000_000


class Item(NamedTuple):
    name: str
    size_bytes: int = 10


class Log:
    """Takes bundles and answers when it is told to."""

    def __init__(self) -> None:
        self.bundles: list[list[str]] = []
        self.running = 0
        self.is_free = asyncio.Event()
        self.error: Exception | None = None

    async def send(self, place: TopicPartition, items: Sequence[Item]) -> list[str]:
        assert place == PLACE
        self.bundles.append([each.name for each in items])
        self.running += 1
        assert self.running == 1
        try:
            await self.is_free.wait()
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error
        return [f"{each.name} is there" for each in items]


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def played(scene: Callable[[Log, Bundles[Item, str]], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        log = Log()
        bundles = Bundles(log.send)
        await scene(log, bundles)
        assert not bundles._waiting, "nothing is kept for partitions that nobody publishes to"

    asyncio.run(play())


def add(bundles: Bundles[Item, str], *items: Item, room: int = ROOM_BYTES) -> "list[Task]":
    return [asyncio.create_task(bundles.add(PLACE, item, bytes_max=room)) for item in items]


Task = asyncio.Task[str]


def test_who_comes_while_others_are_under_way_goes_with_those_who_wait() -> None:
    async def scene(log: Log, bundles: Bundles[Item, str]) -> None:
        first = add(bundles, Item("a"))
        await turn()
        second = add(bundles, Item("b"))
        await turn()
        second += add(bundles, Item("c"))
        await turn()

        assert log.bundles == [["a"]]
        log.is_free.set()
        answers = await asyncio.gather(*first, *second)
        assert answers == [f"{name} is there" for name in "abc"]
        assert log.bundles == [["a"], ["b", "c"]]

    played(scene)


def test_a_bundle_stays_within_its_limits() -> None:
    async def scene(log: Log, bundles: Bundles[Item, str]) -> None:
        tasks = add(bundles, Item("a"))
        await turn()
        tasks += add(bundles, Item("b", 60), Item("c", 40), Item("d", 1), room=100)
        tasks += add(bundles, *[Item("e")] * (RECORDS_MAX + 1))
        log.is_free.set()
        await asyncio.gather(*tasks)

        assert log.bundles[:2] == [["a"], ["b", "c"]]
        assert [len(each) for each in log.bundles[2:]] == [RECORDS_MAX, 2]

    played(scene)


def test_all_of_a_bundle_hear_why_it_failed_and_the_next_one_goes() -> None:
    async def scene(log: Log, bundles: Bundles[Item, str]) -> None:
        first = add(bundles, Item("a"))
        await turn()
        tasks = add(bundles, Item("b"), Item("c"))
        await turn()
        log.error = NotLeader("not here")
        log.is_free.set()
        for task in (*first, *tasks):
            with pytest.raises(NotLeader):
                await task

        log.error = None
        (later,) = add(bundles, Item("d"))
        assert await later == "d is there"

    played(scene)


@pytest.mark.parametrize("leaving", [0, 1])
def test_a_caller_that_leaves_takes_nothing_back(leaving: int) -> None:
    async def scene(log: Log, bundles: Bundles[Item, str]) -> None:
        tasks = add(bundles, Item("a"))
        await turn()
        tasks += add(bundles, Item("b"), Item("c"))
        await turn()
        tasks[leaving].cancel()
        await turn()
        log.is_free.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)

        stayed = [each for each in answers if isinstance(each, str)]
        assert stayed == [f"{name} is there" for name in "abc" if name != "ab"[leaving]]
        assert log.bundles == [["a"], ["b", "c"]]

    played(scene)

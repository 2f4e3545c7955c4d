"""Verbs that travel to the leader of a partition."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.broker.calls import Calls
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.links import Leader
from penstock.errors import Unavailable
from penstock.ids import NodeId, TopicPartition
from tests.unit.cluster.workplaces import run

PLACE = TopicPartition("orders", 0)
GROUP = 7


class Question(msgspec.Struct, frozen=True):
    """Asks for nothing in particular."""


class Links:
    """Requests to peers, which answer when the test says so."""

    def __init__(self) -> None:
        self.answers: dict[int, asyncio.Future[bytes]] = {}

    async def request(self, node: int, kind: int, body: bytes, *, timeout_s: float) -> bytes:
        del kind, body
        self.answers[node] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(timeout_s):
            return await self.answers[node]


def calls_of_node_1() -> tuple[Calls, Links, LeaderTable]:
    links, leaders = Links(), LeaderTable()
    cluster: Any = SimpleNamespace(
        links=links,
        leaders=leaders,
        member=SimpleNamespace(node=NodeId(1)),
        replicas_of=lambda _place: SimpleNamespace(group=GROUP),
    )
    return Calls(cluster), links, leaders


def ask(calls: Calls) -> "asyncio.Future[int]":
    return asyncio.ensure_future(calls.ask(PLACE, "verb", Question(), int, answer_s=3600.0))


def test_a_leader_that_hangs_is_not_waited_for_once_it_is_replaced() -> None:
    async def scene() -> None:
        calls, _, leaders = calls_of_node_1()
        leaders.learn([Leader(GROUP, 1, 2)])
        asked = ask(calls)
        await asyncio.sleep(0)
        leaders.learn([Leader(GROUP, 2, 3)])

        with pytest.raises(Unavailable, match="node 2 was asked, does not lead orders-0 any more"):
            await asked

    run(scene())


def test_a_leader_that_hands_over_still_answers() -> None:
    async def scene() -> None:
        calls, links, leaders = calls_of_node_1()
        leaders.learn([Leader(GROUP, 1, 2)])
        asked = ask(calls)
        await asyncio.sleep(0)
        leaders.learn([Leader(GROUP, 2, 3)])
        links.answers[2].set_result(msgspec.msgpack.encode(17))

        assert await asked == 17

    run(scene())


def test_a_change_of_other_leaders_ends_nothing() -> None:
    async def scene() -> None:
        calls, links, leaders = calls_of_node_1()
        leaders.learn([Leader(GROUP, 1, 2)])
        asked = ask(calls)
        await asyncio.sleep(0)
        leaders.learn([Leader(GROUP + 1, 2, 3), Leader(GROUP, 2, 2)])
        await asyncio.sleep(10)
        links.answers[2].set_result(msgspec.msgpack.encode(17))

        assert await asked == 17

    run(scene())


def test_changes_of_many_leaders_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        calls, _, leaders = calls_of_node_1()
        leaders.learn([Leader(GROUP, 1, 2)])
        asked = [ask(calls) for _ in range(100)]
        await asyncio.sleep(0)
        looks = 0

        def looked_up(group: int) -> Leader | None:
            nonlocal looks
            looks += 1
            return LeaderTable.leader_of(leaders, group)

        monkeypatch.setattr(leaders, "leader_of", looked_up)
        for number in range(1, 100):
            leaders.learn([Leader(GROUP + number, 1, 3)])
        leaders.learn([Leader(GROUP, 2, 3)])
        answers = await asyncio.gather(*asked, return_exceptions=True)

        assert all(isinstance(answer, Unavailable) for answer in answers)
        assert looks == len(asked)

    run(scene())

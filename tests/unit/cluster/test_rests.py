"""Three nodes whose one group rests: who wakes whom, and when."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.cluster.rests import Rests
from penstock.ids import NodeId
from penstock.raft import RaftSettings, Role
from tests.unit.cluster.replica_groups import NODES, ReplicaGroup
from tests.unit.cluster.workplaces import GROUP, batch, run, turn

SETTINGS = RaftSettings(election_ticks=5)


class Beats:
    """Carries beats of one node to the others, after its messages, unless their way is cut."""

    def __init__(self, office: "Offices", node: int) -> None:
        self._office = office
        self._node = NodeId(node)
        self.sent: list[bytes] = []

    @property
    def connected(self) -> list[NodeId]:
        return [NodeId(node) for node in NODES if node != self._node]

    def send_beat(self, to: NodeId, body: bytes) -> None:
        self.sent.append(body)
        if self._passes(to):
            asyncio.get_running_loop().call_soon(self._office.hear, to, self._node, body)

    def send_beat_answer(self, to: NodeId, body: bytes) -> None:
        if self._passes(to):
            self._office.rests[to].answered(self._node, body)

    def _passes(self, to: NodeId) -> bool:
        office = self._office
        return to in office.rests and (self._node, to) not in office.group.network.cuts


class Offices:
    """The clocks of three nodes with one group, or with none that is open."""

    def __init__(self, group: ReplicaGroup) -> None:
        self.group = group
        self.beats = {node: Beats(self, node) for node in NODES}
        self.rests: dict[int, Rests] = {}
        for node in NODES:
            self.open(node)

    def open(self, node: int) -> None:
        logs = {GROUP: self.group[node]}
        self.rests[node] = Rests(NodeId(node), logs, self.beats[node], SETTINGS)

    def hear(self, node: NodeId, sender: NodeId, body: bytes) -> None:
        self.rests[node].heard(sender, body)

    async def tick(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            for rests in tuple(self.rests.values()):
                rests.tick()
            await turn(60)

    def resting(self) -> list[int]:
        return [node for node, log in self.group.network.replicas.items() if log.rest is not None]


def play(scene: Callable[[ReplicaGroup, Offices], Awaitable[None]]) -> None:
    """Run a scene with a group that rests under node 1."""

    async def resting() -> None:
        group = ReplicaGroup()
        await group.elect(1)
        offices = Offices(group)
        await offices.tick(20)
        assert offices.resting() == [1, 2, 3]
        await scene(group, offices)

    run(resting())


def test_a_group_at_rest_sends_nothing_but_beats_and_they_are_all_alike() -> None:
    async def scene(group: ReplicaGroup, offices: Offices) -> None:
        group.isolate(1)
        group.network.cuts.clear()
        offices.beats[1].sent.clear()
        await offices.tick(50)

        assert offices.resting() == [1, 2, 3]
        assert len(set(offices.beats[1].sent)) == 1
        assert group[1].is_serving

    play(scene)


def test_a_publish_wakes_everyone_and_they_rest_again() -> None:
    async def scene(group: ReplicaGroup, offices: Offices) -> None:
        answer = group[1].propose_records(batch(b"a"))
        await turn(60)
        assert offices.resting() == []
        assert answer.result() == 0

        await offices.tick(20)

        assert offices.resting() == [1, 2, 3]
        assert group.are_equal()

    play(scene)


def test_a_leader_that_falls_silent_is_replaced() -> None:
    async def scene(group: ReplicaGroup, offices: Offices) -> None:
        group.stop(1)
        del offices.rests[1]

        await offices.tick(4 * SETTINGS.election_ticks)

        assert Role.LEADER in {group[2].raft.role, group[3].raft.role}

    play(scene)


def test_a_leader_that_has_restarted_is_noticed_by_its_next_beat() -> None:
    async def scene(group: ReplicaGroup, offices: Offices) -> None:
        group.stop(1)
        group.open(1)
        offices.open(1)

        await offices.tick()

        assert offices.resting() == []

    play(scene)


def test_a_replica_that_has_failed_is_no_longer_named() -> None:
    async def scene(group: ReplicaGroup, offices: Offices) -> None:
        group[1]._damaged(OSError("broken"))

        await offices.tick()

        assert offices.resting() == []

    play(scene)


def test_a_follower_that_wakes_alone_wakes_its_leader() -> None:
    async def scene(group: ReplicaGroup, offices: Offices) -> None:
        group[2].wake()

        await offices.tick()

        assert group[1].rest is None

    play(scene)


def test_a_silent_follower_wakes_the_leader_and_nobody_rests_until_it_is_back() -> None:
    async def scene(group: ReplicaGroup, offices: Offices) -> None:
        group.isolate(3)
        await offices.tick(4 * SETTINGS.election_ticks)
        assert offices.resting() == []
        assert group[1].is_serving

        group.heal()
        await offices.tick(6 * SETTINGS.election_ticks)

        assert offices.resting() == [1, 2, 3]

    play(scene)


def test_a_short_pause_of_a_leader_wakes_followers_that_rest_again() -> None:
    async def scene(group: ReplicaGroup, offices: Offices) -> None:
        paused = offices.rests.pop(1)
        await offices.tick(SETTINGS.election_ticks - 1)
        assert offices.resting() == [1]
        offices.rests[1] = paused

        paused.tick()
        await turn(60)

        assert offices.resting() == [1, 2, 3]
        assert group[2].leader == 1

    play(scene)


def test_a_beat_about_groups_that_are_not_here_is_answered_with_them() -> None:
    async def scene(group: ReplicaGroup, offices: Offices) -> None:
        del group
        offices.rests[2] = Rests(NodeId(2), {}, offices.beats[2], SETTINGS)

        await offices.tick()

        assert 1 not in offices.resting()

    play(scene)

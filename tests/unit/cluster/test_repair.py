"""Damage on a follower is mended with the bytes of its leader, where these still belong."""

from collections.abc import Callable

from penstock.cluster.repair import Mender
from penstock.errors import StorageFailed
from penstock.ids import NodeId
from penstock.log import LOG_SUFFIX, scrub_segment
from tests.unit.cluster.replica_groups import ReplicaGroup
from tests.unit.cluster.workplaces import batch, run


class Leader:
    """Answers with the entries of node 1; something may happen before."""

    def __init__(self, group: ReplicaGroup, before: Callable[[], None]) -> None:
        self._log = group[1].log
        self._before = before

    async def request(self, node: NodeId, kind: int, body: bytes, *, timeout_s: float) -> bytes:
        self._before()
        return self._log.payload_at(2)[1]


class Scene:
    """A group that node 1 leads, and a batch that has rotted on node 2."""

    def __init__(self, group: ReplicaGroup) -> None:
        self.group = group
        self.log = group[2]
        self.disk = group.machines[2].disk
        (self.segment,) = self.log.log.segments
        self.path = self.segment.path(LOG_SUFFIX)
        self.whole = self.disk.content(self.path)
        self.disk.flip_bit(self.path, 70)
        (self.damage,) = scrub_segment(self.segment, lambda _: None)

    @classmethod
    async def set_up(cls) -> "Scene":
        group = ReplicaGroup()
        await group.elect(1)
        await group[1].propose_records(batch(b"a value"))
        await group.tick()
        return cls(group)

    async def mend(self, before: Callable[[], None] = lambda: None) -> bool:
        mender = Mender(NodeId(2), Leader(self.group, before))
        return await mender.mend(self.log, self.segment, self.damage)


def test_a_rotten_batch_gets_the_bytes_of_the_leader() -> None:
    async def play() -> None:
        scene = await Scene.set_up()

        assert await scene.mend()

        assert scene.disk.content(scene.path) == scene.whole

    run(play())


def test_files_that_have_taken_the_place_of_the_damaged_ones_meanwhile_are_left_alone() -> None:
    async def play() -> None:
        scene = await Scene.set_up()

        def replace() -> None:
            scene.disk.put(scene.path, scene.whole)
            scene.log.log.reopen()
            scene.disk.put(scene.path, b"of another log")

        assert not await scene.mend(replace)

        assert scene.disk.content(scene.path) == b"of another log"

    run(play())


def test_damage_that_the_leader_has_too_is_left_to_others() -> None:
    async def play() -> None:
        scene = await Scene.set_up()

        def rot() -> None:
            scene.group.machines[1].disk.flip_bit(scene.path, 70)

        assert not await scene.mend(rot)

    run(play())


def test_a_sync_that_fails_while_damage_is_mended_closes_the_replica() -> None:
    async def play() -> None:
        scene = await Scene.set_up()

        assert not await scene.mend(scene.disk.fail_sync)

        assert isinstance(scene.log.failure, StorageFailed)

    run(play())

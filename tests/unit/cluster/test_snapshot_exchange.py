"""Copies of snapshots between nodes: one at a time for a log, and nothing left of a failed one."""

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.cluster.links import RequestKind
from penstock.cluster.pace import Pace
from penstock.cluster.snapshot_exchange import SnapshotExchange
from penstock.cluster.transfer import ChunkRequest, read_chunk
from penstock.errors import NotLeader, Unavailable
from penstock.ids import EntryIndex, NodeId, Term
from penstock.log import Snapshot, save_snapshot
from penstock.raft import InstallSnapshot, Membership
from penstock.raft import Snapshot as RaftSnapshot
from penstock.testing import SimDisk
from tests.unit.cluster.test_transfer import DIRECTORY, Leader, log_with
from tests.unit.cluster.workplaces import SimMachine, run, turn


class Follower:
    """A replica, as far as copies of snapshots know one."""

    def __init__(self, disk: SimDisk) -> None:
        self.name = "orders-0"
        self.identity = msgspec.defstruct("Identity", [("group", int)])(1)
        self.log = log_with(disk, [b"old"], term=1)
        self.is_installing = False
        self.is_closed = False
        self.failed: list[InstallSnapshot] = []
        self.fetched: list[InstallSnapshot] = []
        self.is_too_late = False

    def check_open(self) -> None:
        if self.is_closed:
            raise NotLeader("closed")

    def snapshot_failed(self, offer: InstallSnapshot) -> None:
        self.failed.append(offer)

    def snapshot_fetched(self, offer: InstallSnapshot, complete: Any) -> None:
        self.fetched.append(offer)
        self.is_installing = not self.is_too_late


class Leaders:
    """Answers for leaders; those that hang do so until they are told to go on."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self.hanging: dict[int, asyncio.Event] = {}
        self.chunks: list[int] = []

    async def request(self, node: NodeId, kind: int, body: bytes, *, timeout_s: float) -> bytes:
        if kind == RequestKind.MANIFEST:
            return msgspec.msgpack.encode(self._leader.manifest)
        self.chunks.append(node)
        if node in self.hanging and len(self.chunks) > 1:
            await self.hanging[node].wait()
        request = msgspec.msgpack.decode(body, type=ChunkRequest)
        return read_chunk(self._leader.disk, DIRECTORY, request)


class Scene:
    """A follower to which leaders offer the same snapshot."""

    def __init__(self) -> None:
        machine = SimMachine()
        self.disk = machine.disk
        self.leader = Leader()
        self.leaders = Leaders(self.leader)
        self.follower = Follower(machine.disk)
        workplace = machine.workplace()
        pace = Pace(1 << 40, workplace.loop.time)
        self.exchange = SnapshotExchange(self.leaders, workplace, pace, chunk_bytes=100)

    def offer(self, sender: int) -> InstallSnapshot:
        snapshot = RaftSnapshot(EntryIndex(self.leader.index), Term(2), Membership())
        return InstallSnapshot(NodeId(sender), NodeId(9), Term(sender), snapshot)

    async def copy(self, offer: InstallSnapshot) -> None:
        log: Any = self.follower
        await self.exchange.copy(log, offer)

    @property
    def copied(self) -> dict[str, bytes]:
        """The copied files by the names that they will have."""
        paths = self.disk.files(DIRECTORY)
        found = {path.name.partition("incoming-"): self.disk.content(path) for path in paths}
        return {name: content for (_, mark, name), content in found.items() if mark}

    @property
    def whole(self) -> dict[str, bytes]:
        """What the leader has of the snapshot."""
        return {
            file.name: self.leader.disk.content(DIRECTORY / file.name)[: file.size_bytes]
            for file in self.leader.manifest.files
        }


def test_a_snapshot_is_copied_in_parts() -> None:
    async def play() -> None:
        scene = Scene()
        offer = scene.offer(1)

        await scene.copy(offer)

        assert scene.follower.fetched == [offer]
        assert scene.copied == scene.whole

    run(play())


def test_a_snapshot_that_has_just_been_replaced_is_not_offered() -> None:
    async def play() -> None:
        scene = Scene()
        index = scene.leader.index
        log: Any = scene.follower
        log.snapshot_index, log.log = index + 1, scene.leader.log
        newer = Snapshot(EntryIndex(index + 2), Term(2), b"newer state")
        # The thread that saves it is done with the files, and the loop does not know it yet.
        save_snapshot(scene.disk, DIRECTORY, newer)

        with pytest.raises(Unavailable, match="is gone"):
            scene.exchange.offer_manifest(log, index)

    run(play())


def test_the_offer_of_a_newer_leader_ends_the_copy_under_way() -> None:
    async def play() -> None:
        scene = Scene()
        scene.leaders.hanging[1] = asyncio.Event()
        older, newer = scene.offer(1), scene.offer(2)
        first = asyncio.create_task(scene.copy(older))
        await turn()
        assert scene.leaders.chunks == [1, 1]
        second = asyncio.create_task(scene.copy(newer))
        await turn()

        scene.leaders.hanging[1].set()
        await first
        await second

        assert scene.leaders.chunks.count(1) == 2
        assert (scene.follower.failed, scene.follower.fetched) == ([older], [newer])
        assert scene.copied == scene.whole

    run(play())


def test_a_copy_leaves_the_files_alone_when_its_log_is_closed() -> None:
    async def play() -> None:
        scene = Scene()
        scene.leaders.hanging[1] = asyncio.Event()
        copying = asyncio.create_task(scene.copy(scene.offer(1)))
        await turn()
        scene.follower.is_closed = True
        # Another log has the place by now.
        for name in scene.copied:
            scene.disk.put(DIRECTORY / f"incoming-{name}", b"of another log")
        before = scene.copied

        scene.leaders.hanging[1].set()
        await copying

        assert scene.copied == before != {}

    run(play())


def test_a_copy_that_does_not_fit_on_the_disk_leaves_the_room_to_others() -> None:
    async def play() -> None:
        scene = Scene()
        used_bytes = scene.disk.used_bytes()
        scene.disk.capacity_bytes = used_bytes + 300

        await scene.copy(scene.offer(1))

        assert len(scene.follower.failed) == 1
        assert scene.copied == {}
        assert scene.disk.used_bytes() == used_bytes

    run(play())


def test_a_copy_that_comes_too_late_is_thrown_away() -> None:
    async def play() -> None:
        scene = Scene()
        scene.follower.is_too_late = True

        await scene.copy(scene.offer(1))

        assert len(scene.follower.fetched) == 1
        assert scene.copied == {}

    run(play())


def test_a_copy_waits_for_the_snapshot_that_is_being_installed() -> None:
    async def play() -> None:
        scene = Scene()
        await scene.copy(scene.offer(1))
        copied = scene.copied

        await scene.copy(scene.offer(2))

        assert len(scene.follower.failed) == 1
        assert scene.copied == copied != {}

    run(play())

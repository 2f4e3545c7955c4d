"""What a follower applies: behind the flush that somebody waits for, in order, and once."""

from collections.abc import Sequence
from random import Random

import pytest

from penstock.cluster import FlushPace
from penstock.cluster.transfer import ChunkRequest, IncomingCopy, manifest_of, read_chunk
from penstock.errors import StorageFailed
from penstock.ids import EntryIndex, NodeId, Offset, Term
from penstock.log import IndexHeader, StateEntry
from penstock.raft import Append, Entry, EntryKind, InstallSnapshot, Snapshot
from penstock.record import Buffer
from tests.unit.cluster.replica_groups import ReplicaGroup, Witness
from tests.unit.cluster.workplaces import DIRECTORY, SimMachine, run, turn

SYNC = "sync"


class Diary(Witness):
    """A machine that notes what it is told between the deeds of its disk."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self._notes = notes

    def apply_state(self, entry: StateEntry) -> Offset:
        self._notes.append(f"{entry.index} {entry.payload.decode()}")
        return super().apply_state(entry)

    def restore(self, payload: Buffer, index: EntryIndex) -> None:
        super().restore(payload, index)
        self._notes.append(f"as of {index - 1}")


class Follower:
    """A follower on a quick disk; the test speaks for its leaders, nodes 2 and 3."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.group = ReplicaGroup()
        self.group.stop(1)
        self.group.isolate(1)
        self.machine = self.group.machines[1]
        self.machine.pace = FlushPace(self.machine.clock)
        self.log = self.group.open(1, Diary(self.notes))
        self.machine.disk.trace = self.notes
        self.notes.clear()

    def append(self, *words: str, after: tuple[int, int], term: int = 1, commit: int = 0) -> None:
        """Take in entries behind one that is named by index and term."""
        index, previous = after
        entries = [
            Entry(EntryIndex(number), Term(term), EntryKind.STATE, len(word), word.encode())
            for number, word in enumerate(words, index + 1)
        ]
        self.send(term, index, previous, entries, commit)

    def send(
        self, term: int, index: int, previous: int, entries: Sequence[Entry], commit: int
    ) -> None:
        """Take in what the leader of a term appends."""
        leader, own = NodeId(2 + term % 2), NodeId(1)
        self.log.step(
            Append(
                leader,
                own,
                Term(term),
                EntryIndex(index),
                Term(previous),
                EntryIndex(commit),
                entries,
            )
        )

    async def begin(self) -> None:
        """Store a first entry, which shows that the disk is quick."""
        self.append("a", after=(0, 0))
        await turn()
        self.notes.clear()

    @property
    def told(self) -> list[str]:
        """What the machine was told, and when the disk had synced."""
        return [
            note for note in self.notes if note == SYNC or note[0].isdigit() or note[:2] == "as"
        ]

    @property
    def applied(self) -> list[str]:
        """What the machine was told."""
        return [note for note in self.told if note != SYNC]


def test_a_follower_applies_behind_the_flush_that_it_was_asked_for() -> None:
    async def scene() -> None:
        follower = Follower()
        await follower.begin()

        follower.append("b", after=(1, 1), commit=1)
        await turn()

        assert follower.told == [SYNC, "1 a"]
        follower.append(after=(2, 1), commit=2)
        assert follower.told == [SYNC, "1 a", "2 b"], "nothing to flush is nothing to wait for"

    run(scene())


def test_what_a_follower_applies_does_not_wait_for_a_thread() -> None:
    async def scene() -> None:
        follower = Follower()
        await follower.begin()
        follower.machine.executor.hold()

        follower.append("b" * 100_000, after=(1, 1), commit=1)
        await turn()

        assert follower.told == ["1 a"]
        follower.machine.executor.release()

    run(scene())


def test_appends_of_one_turn_are_applied_together_and_in_order() -> None:
    async def scene() -> None:
        follower = Follower()
        await follower.begin()
        follower.append("b", after=(1, 1))
        await turn()

        follower.append("c", after=(2, 1), commit=1)
        follower.append("d", after=(3, 1), commit=2)
        assert follower.applied == []
        follower.append(after=(4, 1), commit=2)
        assert follower.applied == []
        await turn()

        assert follower.applied == ["1 a", "2 b"]
        follower.append(after=(4, 1), commit=4)
        assert follower.applied == ["1 a", "2 b", "3 c", "4 d"]

    run(scene())


def test_a_cut_leaves_alone_what_was_to_be_applied_before_it() -> None:
    async def scene() -> None:
        follower = Follower()
        await follower.begin()

        follower.append("b", "c", after=(1, 1), commit=1)
        follower.append("B", after=(1, 1), term=2, commit=1)
        follower.append("C", after=(2, 2), term=2, commit=2)
        await turn()
        follower.append(after=(3, 2), term=2, commit=3)

        assert follower.applied == ["1 a", "2 B", "3 C"]
        assert [word for *_, word in follower.group.entries(1)] == [b"a", b"B", b"C"]

    run(scene())


def test_nothing_is_applied_behind_a_flush_that_fails() -> None:
    async def scene() -> None:
        follower = Follower()
        await follower.begin()
        follower.machine.disk.fail_sync()

        follower.append("b", after=(1, 1), commit=1)
        await turn()

        assert isinstance(follower.log.failure, StorageFailed)
        assert follower.applied == []

    run(scene())


def test_a_snapshot_takes_the_place_of_the_log_behind_what_was_to_be_applied() -> None:
    async def scene() -> None:
        leader = SimMachine()
        led = await leader.replicated_log(Witness())
        for word in (b"a", b"b", b"c", b"d"):
            await led.propose_state(word)
        await led.save_snapshot()
        manifest = manifest_of(leader.disk, led.log, led.applied_index)
        follower = Follower()
        await follower.begin()
        disk = follower.machine.disk
        copy = IncomingCopy(disk, DIRECTORY)
        copy.begin()
        for file in manifest.files:
            request = ChunkRequest(1, led.applied_index, file.name, 0, file.size_bytes)
            copy.write(file.name, 0, read_chunk(leader.disk, DIRECTORY, request))
        copy.check(led.applied_index)
        active = IndexHeader(led.applied_index + 1, manifest.next_offset, manifest.term, 0)
        snapshot = Snapshot(
            led.applied_index, led.log.term_at(led.applied_index), follower.group.membership
        )
        offer = InstallSnapshot(NodeId(2), NodeId(1), Term(2), snapshot)
        names = [file.name for file in manifest.files]
        follower.log.on_snapshot_wanted = lambda wanted: follower.log.snapshot_fetched(
            wanted, lambda: copy.complete(names, active)
        )

        follower.append("b", after=(1, 1), commit=1)
        follower.log.step(offer)
        await turn()
        follower.append("e", after=(5, 1), term=2, commit=6)
        await turn()

        assert follower.applied == ["1 a", "as of 5", "6 e"]
        assert follower.group.witnesses[1].events == [b"e"]

    run(scene())


@pytest.mark.parametrize("seed", range(30))
def test_whatever_leaders_send_is_applied_in_order_and_once(seed: int) -> None:
    async def scene() -> None:
        random = Random(seed)
        follower = Follower()
        await follower.begin()
        executor = follower.machine.executor
        entries = [(1, "a")]
        term, commit = 1, 0
        for number in range(300):
            if random.random() < 0.1:
                # Another leader, with what is committed and perhaps some of the rest.
                term += 1
                del entries[random.randint(commit, len(entries)) :]
            start = random.randint(commit, len(entries))
            for _ in range(random.randrange(4)):
                size = 20_000 if random.random() < 0.05 else 1
                entries.append((term, f"{number}" * size))
            commit = random.randint(commit, len(entries))
            new = [
                Entry(EntryIndex(index), Term(of), EntryKind.STATE, len(word), word.encode())
                for index, (of, word) in enumerate(entries[start:], start + 1)
            ]
            previous = entries[start - 1][0] if start else 0
            follower.send(term, start, previous, new, commit)
            if random.random() < 0.1:
                executor.hold()
            if random.random() < 0.3:
                executor.release()
            await turn(random.choice((0, 0, 1, 2, 5)))
            expected = [f"{index} {word}" for index, (_, word) in enumerate(entries[:commit], 1)]
            assert follower.applied == expected[: len(follower.applied)]
        executor.release()
        await turn()
        follower.send(term, len(entries), entries[-1][0], [], len(entries))

        expected = [f"{index} {word}" for index, (_, word) in enumerate(entries, 1)]
        assert follower.applied == expected

    run(scene())

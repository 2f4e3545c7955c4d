"""Bugs planted one at a time, each of which the simulation must notice.

They prove the referee, not the code: a checker that lets one of these pass would let the same
mistake pass in the code. A bug is a set of replacements for small methods of the real classes, in
force while a history is played.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec import structs

from penstock.cluster import housekeeping as housekeeping_module
from penstock.cluster import replica_state
from penstock.cluster import transfer as transfer_module
from penstock.cluster.housekeeping import Housekeeper
from penstock.cluster.partition import Partition
from penstock.cluster.producers import after_batch
from penstock.cluster.replica_storage import ReplicaStorage
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.rests import Rests
from penstock.cluster.topic_machine import TopicMachine
from penstock.cluster.transfer import IncomingCopy
from penstock.ids import EntryIndex, NodeId, Offset, Term
from penstock.log import Compaction, HardStateFile, PartitionLog, Segment
from penstock.log import compaction as compaction_module
from penstock.log import hard_state as hard_state_module
from penstock.log import partition_log as partition_log_module
from penstock.log import recovery as recovery_module
from penstock.log import segment as segment_module
from penstock.log.partition_log import CheckpointRun
from penstock.raft import (
    Append,
    Entry,
    Incarnation,
    Mark,
    Message,
    RaftNode,
    Role,
    Write,
)
from penstock.raft.progress import Progress
from penstock.record import RecordBatch

Replacements = list[tuple[Any, str, Any]]
BUGS: dict[str, Callable[[], Replacements]] = {}


def bug(make: Callable[[], Replacements]) -> Callable[[], Replacements]:
    """Register a bug under the name of its function."""
    BUGS[make.__name__] = make
    return make


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug for a while."""
    with ExitStack() as stack:
        for owner, attribute, replacement in BUGS[name]():
            stack.enter_context(patch.object(owner, attribute, replacement))
        yield


# Consensus.


@bug
def rests_on_while_the_leader_is_silent() -> Replacements:
    return [(Rests, "_fell_silent", lambda self, node, peer: None)]


@bug
def rests_on_while_the_leader_no_longer_says_so() -> Replacements:
    follow = Rests._follow

    def follow_only(self: Rests, node: NodeId, peer: Any, body: bytes) -> None:
        if body:
            follow(self, node, peer, body)

    return [(Rests, "_follow", follow_only)]


@bug
def commits_old_terms_by_counting() -> Replacements:
    return [(RaftNode, "_may_commit_by_counting", lambda self, index: True)]


@bug
def votes_twice_in_a_term() -> Replacements:
    return [(RaftNode, "_is_vote_free", lambda self, message: True)]


@bug
def votes_for_shorter_logs() -> Replacements:
    return [(RaftNode, "_is_up_to_date", lambda self, last_index, last_term: True)]


@bug
def reveals_votes_before_they_are_saved() -> Replacements:
    def send(self: RaftNode, message: Message) -> None:
        self._messages.append(message)

    return [(RaftNode, "_send", send)]


@bug
def acknowledges_appends_before_the_sync() -> Replacements:
    on_append = RaftNode._on_append

    def acknowledge_at_once(self: RaftNode, message: Append) -> None:
        on_append(self, message)
        self._acknowledge()

    return [
        (RaftNode, "_ackable_index", lambda self: self._verified_index),
        (RaftNode, "_on_append", acknowledge_at_once),
    ]


@bug
def leader_counts_its_own_copy_before_the_sync() -> Replacements:
    return [(RaftNode, "_own_match", lambda self: self._log.last_index)]


@bug
def cuts_what_an_append_does_not_mention() -> Replacements:
    accept = RaftNode._accept

    def accept_and_cut(self: RaftNode, entries: Sequence[Entry]) -> None:
        accept(self, entries)
        if entries and self._log.last_index > entries[-1].index:
            self._log.truncate(max(entries[-1].index, self.commit_index) + 1)

    return [(RaftNode, "_accept", accept_and_cut)]


@bug
def keeps_conflicting_entries() -> Replacements:
    def first_new(self: RaftNode, entries: Sequence[Entry]) -> int:
        return sum(entry.index <= self._log.last_index for entry in entries)

    return [(RaftNode, "_first_new", first_new)]


@bug
def counts_a_wiped_node_for_its_former_self() -> Replacements:
    speaker = RaftNode._speaker

    def any_speaker(self: RaftNode, node: NodeId, incarnation: Incarnation) -> Progress | None:
        progress = self._progress.get(node)
        return progress and speaker(self, node, progress.incarnation)

    return [(RaftNode, "_speaker", any_speaker)]


@bug
def wiped_node_votes_as_its_former_self() -> Replacements:
    take_answer = RaftNode._take_answer

    def take_any_answer(self: RaftNode, member: Any, *, is_granted: bool) -> None:
        for voter in self._memberships.current.voters:
            if voter.node == member.node:
                member = voter
        take_answer(self, member, is_granted=is_granted)

    return [
        (RaftNode, "_take_answer", take_any_answer),
        (RaftNode, "_may_vote", lambda self: True),
    ]


@bug
def changes_members_while_a_change_is_open() -> Replacements:
    return [
        (RaftNode, "_may_change_membership", lambda self: True),
        (RaftNode, "_has_been_admitted", lambda self, learner: True),
    ]


# The replica's disk.


@bug
def vote_is_not_synced() -> Replacements:
    def save(self: HardStateFile, *, term: int, vote: int | None, commit: int) -> None:
        self._slots.write(term, -1 if vote is None else vote, commit)

    return [(HardStateFile, "save", save)]


@bug
def vote_that_was_saved_ahead_is_taken_back() -> Replacements:
    return [(ReplicaStorage, "_not_before_ahead", lambda self, mark, own: own)]


@bug
def vote_is_not_saved() -> Replacements:
    save = HardStateFile.save

    def save_term(self: HardStateFile, *, term: int, vote: int | None, commit: int) -> None:
        save(self, term=term, vote=None, commit=commit)

    return [(HardStateFile, "save", save_term)]


@bug
def reports_a_write_before_it_is_on_disk() -> Replacements:
    write = ReplicaStorage.write

    def write_and_report(self: ReplicaStorage, order: Write) -> None:
        write(self, order)
        if not self._has_failed:
            self._workplace.loop.call_soon(self._on_persisted, order.mark)

    return [(ReplicaStorage, "write", write_and_report)]


@bug
def reports_the_mark_of_a_write_that_is_only_begun() -> Replacements:
    take_entries = ReplicaStorage._take_entries

    def take(self: ReplicaStorage, job: Any, now_ms: int) -> None:
        take_entries(self, job, now_ms)
        if len(self._writes) > job.writes and job.mark is not None:
            job.mark = self._writes[job.writes].mark

    return [(ReplicaStorage, "_take_entries", take)]


@bug
def records_are_not_synced() -> Replacements:
    return [(Segment, "sync", lambda self, *files: None)]


@bug
def cut_does_not_reach_the_files() -> Replacements:
    return [(partition_log_module, "_cut", lambda segment: None)]


@bug
def checkpoint_is_written_before_its_sync() -> Replacements:
    def run(self: CheckpointRun) -> None:
        self.file.write(
            first_index=self.segment.first_index,
            rows=self.rows + 2,
            log_bytes=self.log_bytes,
            state_bytes=self.state_bytes,
        )

    return [(CheckpointRun, "run", run)]


@bug
def segment_names_are_not_synced() -> Replacements:
    return [(segment_module, "sync_names", lambda disk, directory: None)]


# The replica.


@bug
def applies_what_is_not_committed() -> Replacements:
    ready = RaftNode.ready

    def ready_early(self: RaftNode) -> Any:
        commit, self.commit_index = self.commit_index, self._log.persisted_index
        try:
            effects = ready(self)
        finally:
            self.commit_index = commit
        return effects

    return [(RaftNode, "ready", ready_early)]


@bug
def serves_before_it_knows_what_is_committed() -> Replacements:
    return [
        (ReplicatedLog, "_may_serve", lambda self: self.raft.role is Role.LEADER),
    ]


@bug
def serves_after_it_was_deposed() -> Replacements:
    return [(ReplicatedLog, "check_serving", lambda self: None)]


@bug
def acknowledges_publishes_before_they_commit() -> Replacements:
    propose_records = ReplicatedLog.propose_records

    def hasty(self: ReplicatedLog, batch: RecordBatch, **given: Any) -> Any:
        return propose_records(self, batch, **given | {"waits_for_commit": False})

    return [(ReplicatedLog, "propose_records", hasty)]


@bug
def high_watermark_follows_the_log_and_falls_back() -> Replacements:
    persisted = ReplicatedLog._persisted

    def show_early(self: ReplicatedLog, mark: Mark) -> None:
        persisted(self, mark)
        self.high_watermark = self._offset_after(self.log.written_index - 1)

    return [(ReplicatedLog, "_persisted", show_early)]


@bug
def producers_are_forgotten_on_a_restart() -> Replacements:
    restore = TopicMachine.restore

    def forget(self: TopicMachine, payload: bytes, index: EntryIndex) -> None:
        restore(self, payload, index)
        self.producers = {}

    return [(TopicMachine, "restore", forget)]


@bug
def producers_are_known_to_the_leader_alone() -> Replacements:
    publish = Partition.publish

    def apply_records(self: TopicMachine, header: Any, offset: Offset, batch: Any) -> None:
        del offset, batch
        self._newest_timestamp = max(self._newest_timestamp, header.max_timestamp)

    def publish_and_remember(self: Partition, batch: Any, **options: Any) -> Any:
        answer = publish(self, batch, **options)
        header = batch.header

        def remember(done: Any) -> None:
            if header.has_producer and done.exception() is None:
                producers = self._machine.producers
                known = producers.get(header.producer_id)
                if known is None or known.duplicate_of(header) is None:
                    producers[header.producer_id] = after_batch(known, header, done.result())

        answer.add_done_callback(remember)
        return answer

    return [
        (TopicMachine, "apply_records", apply_records),
        (Partition, "publish", publish_and_remember),
    ]


@bug
def snapshot_claims_one_entry_too_many() -> Replacements:
    def snapshot_of(index: EntryIndex, term: Term, payload: bytes) -> Any:
        return real(EntryIndex(index + (index > 1)), term, payload)

    real = replica_state.Snapshot
    return [(replica_state, "Snapshot", snapshot_of)]


@bug
def recovery_trusts_the_page_cache() -> Replacements:
    opened = HardStateFile.__init__

    def open_only(self: HardStateFile, disk: Any, directory: Any) -> None:
        with patch.object(hard_state_module, "sync_file", lambda file: None):
            opened(self, disk, directory)

    return [(HardStateFile, "__init__", open_only)]


@bug
def forgets_what_it_may_have_lost() -> Replacements:
    return [(recovery_module, "save_doubt", lambda disk, directory, doubt: None)]


@bug
def counts_on_what_a_follower_has_lost() -> Replacements:
    original = Progress.refused

    def refused(self: Progress, index: int, next_index: int) -> bool:
        return index > self.match and original(self, index, next_index)

    return [(Progress, "refused", refused)]


@bug
def damaged_entries_are_sent_to_followers() -> Replacements:
    def unchecked(self: PartitionLog, index: int) -> Any:
        segment = self._segment_of(index)
        row = segment.table.row(index - segment.first_index)
        if row.kind == 1:
            return row, segment.files.log.read_at(row.log_position, row.size)
        return row, segment.files.state.read_at(row.state_position, row.size)[32:]

    return [(PartitionLog, "payload_at", unchecked)]


# Copies of snapshots.


@bug
def copy_of_a_snapshot_is_not_synced() -> Replacements:
    return [(IncomingCopy, "_sync", lambda self, name: None)]


@bug
def copy_of_a_snapshot_takes_the_vote_away() -> Replacements:
    return [(transfer_module, "_OWN", ())]


@bug
def snapshot_is_installed_without_its_state() -> Replacements:
    installed = ReplicatedLog._installed

    def install(self: ReplicatedLog, snapshot: Any) -> None:
        with patch.object(self.machine, "restore", lambda payload, index: None):
            installed(self, snapshot)

    return [(ReplicatedLog, "_installed", install)]


@bug
def entries_outlive_the_snapshot_that_replaces_them() -> Replacements:
    take_back = ReplicatedLog._take_back_cut

    def keep(self: ReplicatedLog, write: Write) -> None:
        take_back(self, structs.replace(write, snapshot=None))

    return [(ReplicatedLog, "_take_back_cut", keep)]


# Retention, compaction and deletion.


@bug
def retention_does_not_wait_for_a_snapshot() -> Replacements:
    tidy_log = Housekeeper._tidy_log
    expired = PartitionLog.expired

    async def tidy(self: Housekeeper, log: ReplicatedLog) -> None:
        with patch.object(log, "save_snapshot", _nothing):
            await tidy_log(self, log)

    def all_expired(self: PartitionLog, *, now_ms: int, deletable_index: int) -> Any:
        return expired(self, now_ms=now_ms, deletable_index=self.next_index)

    return [(Housekeeper, "_tidy_log", tidy), (PartitionLog, "expired", all_expired)]


async def _nothing() -> None:
    pass


@bug
def retention_takes_one_segment_too_many() -> Replacements:
    expired = PartitionLog.expired

    def one_more(self: PartitionLog, *, now_ms: int, deletable_index: int) -> Any:
        found = expired(self, now_ms=now_ms, deletable_index=deletable_index)
        following = self.segments[len(found) : len(found) + 1]
        if found and following[0].next_index <= deletable_index:
            return found + following
        return found

    return [(PartitionLog, "expired", one_more)]


@bug
def compaction_counts_what_is_not_committed() -> Replacements:
    real = housekeeping_module.plan_compaction

    def plan(segments: Any, settings: Any, now_ms: int, **options: Any) -> Any:
        return real(segments, settings, now_ms, **{**options, "end_index": 1 << 60})

    return [(housekeeping_module, "plan_compaction", plan)]


@bug
def compaction_keeps_the_oldest_of_a_key() -> Replacements:
    def is_kept(self: Compaction, segment: Any, record: Any, latest: dict[bytes, int]) -> bool:
        return record.key is None or latest.get(compaction_module._digest(record.key), 0) % 2 == 0

    return [(Compaction, "_is_kept", is_kept)]


@bug
def deletion_is_known_to_one_replica() -> Replacements:
    async def delete_records(self: Partition, offset: Offset) -> Offset:
        self.log.check_serving()
        self._machine._start_offset = max(self._machine._start_offset, offset)
        return self.start_offset

    return [(Partition, "delete_records", delete_records)]


@bug
def deletion_is_forgotten_on_a_restart() -> Replacements:
    restore = TopicMachine.restore

    def forget(self: TopicMachine, payload: bytes, index: EntryIndex) -> None:
        restore(self, payload, index)
        self._start_offset = Offset(0)

    return [(TopicMachine, "restore", forget)]

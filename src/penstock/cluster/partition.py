"""A partition of a topic: what may be published into it and what can be read from it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyroaring import BitMap64

from penstock.cluster.deliveries import DeliveryHost
from penstock.cluster.machine import Machine
from penstock.cluster.partition_fence import KnownFences, PartitionFence
from penstock.cluster.partition_intake import Intake
from penstock.cluster.partition_queue import PartitionQueue
from penstock.cluster.partition_stage import PartitionStage
from penstock.cluster.partition_writes import PartitionWrites, StagedEntries
from penstock.cluster.producers import (
    ProducerState,
    after_batch,
    check_sequence,
    next_sequence,
)
from penstock.cluster.replica_identity import ReplicaIdentity, Transport
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.topic_machine import (
    Archived,
    TopicMachine,
    encode_archived,
    encode_start_moved,
)
from penstock.cluster.traffic import Traffic
from penstock.cluster.turned_away import TurnedAway
from penstock.cluster.workplace import Workplace
from penstock.errors import (
    Conflict,
    Corruption,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PenstockError,
)
from penstock.ids import Offset, Term, TopicPartition
from penstock.log import FileRange, LogSettings
from penstock.raft import RaftSettings
from penstock.record import BatchHeader, Record, RecordBatch

_NOTHING_KNOWN = KnownFences()


class _Pending(NamedTuple):
    """One batch that is proposed: its answer, and its producer as it will stand once it commits."""

    sequence: int
    answer: asyncio.Future[Offset]
    state: ProducerState


@dataclass(frozen=True, slots=True)
class _InFlight:
    """One producer's proposals that are not settled, in order."""

    batches: list[_Pending]

    @property
    def state(self) -> ProducerState:
        """The producer as it will stand when all of them are committed."""
        return self.batches[-1].state

    def answer_of(self, sequence: int) -> asyncio.Future[Offset] | None:
        """What the batch with this first sequence waits for."""
        return next((each.answer for each in self.batches if each.sequence == sequence), None)


class Partition:
    """One partition: a replicated log of records, with the producers that write to it."""

    def __init__(
        self,
        place: TopicPartition,
        log: ReplicatedLog,
        machine: TopicMachine,
        queue: PartitionQueue,
        workplace: Workplace,
        *,
        fences: KnownFences = _NOTHING_KNOWN,
    ) -> None:
        self.place = place
        self.log = log
        self.queue = queue
        self.fence = PartitionFence(log, machine, fences)
        self.intake = Intake(log, machine, workplace, self._propose_in_sequence, self.fence)
        self.stage = PartitionStage(place, log, machine, workplace, self.fence)
        self.writes = PartitionWrites(log, machine, workplace, self.fence)
        log.entry_reader = StagedEntries(self.stage, self.writes)
        self._machine = machine
        self._in_flight: dict[int, _InFlight] = {}
        self.turned_away = TurnedAway(workplace.clock)
        self.traffic = Traffic()

    @classmethod
    def open(
        cls,
        place: TopicPartition,
        identity: ReplicaIdentity,
        directory: Path,
        settings: LogSettings,
        *,
        found: Callable[[Machine], None],
        producer_expiry_ms: int,
        workplace: Workplace,
        transport: Transport,
        raft_settings: RaftSettings,
        host: DeliveryHost,
        fences: KnownFences = _NOTHING_KNOWN,
    ) -> "Partition":
        """Open the partition's files, recovering them when needed. Runs in a thread.

        `found` puts a replica on disk where there is none and this node begins the group.
        """
        machine = TopicMachine(producer_expiry_ms=producer_expiry_ms)
        found(machine)
        log = ReplicatedLog(
            identity,
            directory,
            settings,
            machine,
            workplace,
            transport=transport,
            raft_settings=raft_settings,
        )
        queue = PartitionQueue(place, log, machine, workplace, host=host)
        return cls(place, log, machine, queue, workplace, fences=fences)

    def rename(self, place: TopicPartition) -> None:
        """Go by the name that the topic has now."""
        self.place = place
        self.log.rename(str(place))
        self.queue.rename(place)

    def take_refusals_of(self, former: "Partition") -> None:
        """Know of batches that were turned away by the partition that had this one's name.

        They come here next, and must not be overtaken by those that follow them.
        """
        self.turned_away.take_over(former.turned_away)

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be read."""
        return Offset(max(self.log.log.first_offset, self._machine.start_offset))

    @property
    def archived_offset(self) -> Offset:
        """The topic's archive is known to hold the records below."""
        return self._machine.archived_offset(self.log.log.settings.archive)

    @property
    def priorities(self) -> Mapping[int, BitMap64]:
        """Offsets of records that have another priority than the normal one."""
        return self._machine.arrivals.priorities

    @property
    def high_watermark(self) -> Offset:
        """The offset after the last committed record."""
        return self.log.high_watermark

    @property
    def leader_epoch(self) -> Term:
        """The term of the partition's leader."""
        return self.log.term

    def publish(
        self,
        batch: RecordBatch,
        *,
        waits_for_commit: bool = True,
        on_settled: Callable[[], None] | None = None,
    ) -> asyncio.Future[Offset]:
        """Append a batch; the future gives the offset of its first record once it is committed.

        Without `waits_for_commit` it is enough that this leader has the batch on disk; batches of
        idempotent producers always wait.

        A batch that an idempotent producer sends again is not appended: the future gives the offset
        of the first copy, when that is committed.

        `on_settled` is called when the future is done, as soon as that can be.
        """
        header = batch.header
        if header.producer_id < 0:
            self.fence.check()
            return self.log.propose_records(
                batch, waits_for_commit=waits_for_commit, on_settled=on_settled
            )
        return self._propose_in_sequence(
            header, lambda: self.log.propose_records(batch, on_settled=on_settled), on_settled
        )

    def _propose_in_sequence(
        self,
        header: BatchHeader,
        propose: Callable[[], asyncio.Future[Offset]],
        on_repeat_settled: Callable[[], None] | None = None,
    ) -> asyncio.Future[Offset]:
        """Propose what an idempotent producer sent, unless it came before."""
        # Before the sequence: to be told that a batch is out of order makes a producer repeat those
        # before it under another epoch, and one of them may be committed under the next leader.
        try:
            self.log.check_writable()
            self.fence.check()
        except PenstockError as error:
            self.refuse(header, error)
            raise
        in_flight = self._in_flight_of(header.producer_id)
        known = self._known(header.producer_id, in_flight)
        if known is None:
            if reason := self.turned_away.reason_to_begin_with_another(header):
                raise reason.with_traceback(None)
        elif (found := self._answer_at_hand(known, header, in_flight)) is not None:
            if on_repeat_settled is not None:
                found.add_done_callback(lambda _: on_repeat_settled())
            return found
        try:
            answer = propose()
        except PenstockError as error:
            self.refuse(header, error)
            raise
        self.turned_away.accepted(header.producer_id)
        in_flight = in_flight or _InFlight([])
        state = after_batch(known, header, -1)
        in_flight.batches.append(_Pending(header.base_sequence, answer, state))
        self._in_flight[header.producer_id] = in_flight
        answer.add_done_callback(lambda _: self._in_flight_of(header.producer_id))
        return answer

    def refuse(self, header: BatchHeader, reason: PenstockError) -> None:
        """Take note of a batch that is turned away for now and will be sent again."""
        if header.has_producer:
            in_flight = self._in_flight_of(header.producer_id)
            known = self._known(header.producer_id, in_flight)
            self.turned_away.note(header, reason, known=known)

    def _known(self, producer_id: int, in_flight: "_InFlight | None") -> ProducerState | None:
        """Return a producer as it stands when all that it has in flight is committed."""
        return in_flight.state if in_flight else self._machine.producers.get(producer_id)

    def _answer_at_hand(
        self, known: ProducerState, header: BatchHeader, in_flight: "_InFlight | None"
    ) -> asyncio.Future[Offset] | None:
        """Return the answer of a batch that is not to be appended; None for the next in line."""
        try:
            return (
                self._first_answer(header, in_flight) if self._is_repeated(known, header) else None
            )
        except OutOfOrderSequence as error:
            if self.log.is_alone:
                raise
            return asyncio.get_running_loop().create_task(self._refuse_for_certain(header, error))

    async def _refuse_for_certain(self, header: BatchHeader, error: OutOfOrderSequence) -> Offset:
        """Refuse a batch because one before it is missing, unless another leader may have that.

        Producers give up for good when they are told so. A leader that was replaced without knowing
        it lacks what the next one has stored.
        """
        try:
            await self.log.wait_current()
        except PenstockError as doubt:
            self.refuse(header, doubt)
            raise
        raise error

    def _is_repeated(self, known: ProducerState, header: BatchHeader) -> bool:
        """True for a batch that is known already; raises when it is not the next one."""
        try:
            return check_sequence(known, header) is not None
        except OutOfOrderSequence:
            awaited = next_sequence(known, header.producer_epoch)
            if reason := self.turned_away.reason_to_wait(header, awaited):
                raise reason.with_traceback(None) from None
            if self._is_of_former_leader(known) and self.turned_away.may_be_overtaken(
                header, awaited
            ):
                raise NotLeader(
                    f"the batch before sequence {header.base_sequence} of producer"
                    f" {header.producer_id} has not come since another node led {self.place}"
                ) from None
            raise

    def _is_of_former_leader(self, known: ProducerState) -> bool:
        """True when a producer's newest batch was taken by another leader."""
        former = self.log.log.end_offset_of_term(self.log.term - 1)
        if former is None or self.log.is_alone:
            return False
        return -1 < known.batches[-1].offset < former[1]

    def _in_flight_of(self, producer_id: int) -> "_InFlight | None":
        """Return what a producer has in flight, or None when all of it is settled.

        Proposals commit in order, and one that fails takes those that follow with it, while those
        before it may still commit. When none is left, the machine alone knows what was committed: a
        batch that builds on a failed one must not pass for the next in line.
        """
        in_flight = self._in_flight.get(producer_id)
        if in_flight is None:
            return None
        batches = in_flight.batches
        while batches and batches[-1].answer.done():
            settled = batches.pop()
            if isinstance(reason := settled.answer.exception(), PenstockError):
                self.turned_away.note_failed(
                    producer_id, settled.state.epoch, settled.sequence, reason
                )
        if batches:
            while batches[0].answer.done():
                del batches[0]
            return in_flight
        del self._in_flight[producer_id]
        return None

    def _first_answer(
        self, header: BatchHeader, in_flight: "_InFlight | None"
    ) -> asyncio.Future[Offset]:
        """Return the answer of a batch's first copy, which may still be on its way."""
        if in_flight and (first := in_flight.answer_of(header.base_sequence)):
            return first
        committed = self._machine.producers[header.producer_id].duplicate_of(header)
        assert committed is not None, "what is not in flight is committed"
        answer: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        answer.set_result(Offset(committed.offset))
        return answer

    def read(self, offset: int, *, bytes_max: int) -> FileRange | None:
        """Return committed batches from the one that holds `offset`, or None at the end."""
        self.fence.check_reads()
        try:
            return self.log.read(offset, start_offset=self.start_offset, bytes_max=bytes_max)
        except Corruption:
            self.log.suspicion.arise(offset)
            raise

    def check_serving(self) -> None:
        """Raise when this node cannot tell where the partition starts and ends."""
        self.log.check_serving()

    async def wait_current(self) -> None:
        """Wait until it is certain that no other node leads, and knows more; raise when one may."""
        await self.log.wait_current()

    def find_time(self, timestamp: int) -> Record | None:
        """Return the first readable record at or after `timestamp`."""
        self.fence.check_reads()
        self.log.check_serving()
        return self.log.log.find_time(
            timestamp, start_offset=self.start_offset, end_offset=self.high_watermark
        )

    def find_newest(self) -> Record | None:
        """Return the record with the largest timestamp."""
        self.fence.check_reads()
        self.log.check_serving()
        return self.log.log.find_newest(end_offset=self.high_watermark)

    def end_offset_of_epoch(self, epoch: int) -> tuple[Term, Offset] | None:
        """Return the largest leader epoch up to `epoch` and the offset at which it ended.

        None for one that has not begun; one that is older than all records ended before them.
        """
        self.log.check_serving()
        if epoch > self.leader_epoch:
            return None
        log = self.log.log
        return log.end_offset_of_term(epoch) or (Term(epoch), log.first_offset)

    async def delete_records(self, offset: Offset) -> Offset:
        """Make records below `offset` unreadable; their segments go with the next retention."""
        self.log.check_serving()
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"records of {self.place} can be deleted up to {self.high_watermark}, not {offset}"
            )
        # Not where this replica's own log begins: another may keep older records, and lead next.
        if offset <= self._machine.start_offset:
            return self.start_offset
        await self.log.propose_state(encode_start_moved(offset))
        return self.start_offset

    async def note_archived(self, event: Archived) -> Offset:
        """Take note of how far an archive is; returns how far it is known to be."""
        self.log.check_serving()
        if event.path != self.log.log.settings.archive:
            wanted = self.log.log.settings.archive or "nowhere"
            raise Conflict(f"{self.place} is archived to {wanted}, not to {event.path}")
        if not 0 <= event.offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"{self.place} ends at {self.high_watermark}; it cannot be archived up to"
                f" {event.offset}"
            )
        if self._machine.knows_archived(event):
            return self.archived_offset
        archived: Offset = await self.log.propose_state(encode_archived(event))
        return archived

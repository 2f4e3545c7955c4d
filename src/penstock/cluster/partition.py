"""A partition of a topic: what may be published into it and what can be read from it."""

import asyncio
from pathlib import Path

from penstock.cluster.producers import ProducerState, after_batch, check_sequence
from penstock.cluster.replicated_log import ReplicatedLog, Workplace
from penstock.cluster.topic_machine import TopicMachine, encode_start_moved
from penstock.errors import OffsetOutOfRange
from penstock.ids import Offset, Term, TopicPartition
from penstock.log import FileRange, LogSettings, PartitionLog
from penstock.record import BatchHeader, Record, RecordBatch


class Partition:
    """One partition: a replicated log of records, with the producers that write to it."""

    def __init__(self, place: TopicPartition, log: ReplicatedLog, machine: TopicMachine) -> None:
        self.place = place
        self.log = log
        self._machine = machine
        # Producers as they will stand when all proposals in flight are committed, and the
        # answers that those proposals wait for.
        self._proposed: dict[int, ProducerState] = {}
        self._answers: dict[tuple[int, int, int], asyncio.Future[Offset]] = {}

    @classmethod
    def open(
        cls,
        place: TopicPartition,
        directory: Path,
        settings: LogSettings,
        *,
        producer_expiry_ms: int,
        workplace: Workplace,
    ) -> "Partition":
        """Open the partition's files, recovering them when needed. Runs in a thread."""
        log = PartitionLog(workplace.disk, directory, settings)
        machine = TopicMachine(producer_expiry_ms=producer_expiry_ms)
        return cls(place, ReplicatedLog(str(place), log, machine, workplace), machine)

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be read."""
        return Offset(max(self.log.log.first_offset, self._machine.start_offset))

    @property
    def high_watermark(self) -> Offset:
        """The offset after the last committed record."""
        return self.log.high_watermark

    @property
    def leader_epoch(self) -> Term:
        """The term of the partition's leader."""
        return self.log.term

    def publish(self, batch: RecordBatch) -> asyncio.Future[Offset]:
        """Append a batch; the future gives the offset of its first record once it is committed.

        A batch that an idempotent producer sends again is not appended: the future gives the offset
        of the first copy, when that is committed.
        """
        header = batch.header
        if not header.has_producer:
            return self.log.propose_records(batch)
        if self.log.is_idle:
            self._proposed.clear()
            self._answers.clear()
        known = self._proposed.get(header.producer_id) or self._machine.producers.get(
            header.producer_id
        )
        duplicate = check_sequence(known, header)
        if duplicate is not None:
            return self._first_answer(header, duplicate.offset)
        answer = self.log.propose_records(batch)
        self._proposed[header.producer_id] = after_batch(known, header, -1)
        self._answers[header.producer_id, header.producer_epoch, header.base_sequence] = answer
        return answer

    def _first_answer(self, header: BatchHeader, offset: int) -> asyncio.Future[Offset]:
        if offset < 0:
            return self._answers[header.producer_id, header.producer_epoch, header.base_sequence]
        answer: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        answer.set_result(Offset(offset))
        return answer

    def read(self, offset: int, *, bytes_max: int) -> FileRange | None:
        """Return committed batches from the one that holds `offset`, or None at the end."""
        return self.log.read(offset, start_offset=self.start_offset, bytes_max=bytes_max)

    def find_time(self, timestamp: int) -> Record | None:
        """Return the first readable record at or after `timestamp`."""
        self.log.check_open()
        return self.log.log.find_time(
            timestamp, start_offset=self.start_offset, end_offset=self.high_watermark
        )

    def find_newest(self) -> Record | None:
        """Return the record with the largest timestamp."""
        self.log.check_open()
        return self.log.log.find_newest(end_offset=self.high_watermark)

    def end_offset_of_epoch(self, epoch: int) -> tuple[Term, Offset] | None:
        """Return the largest leader epoch up to `epoch` and the offset at which it ended."""
        self.log.check_open()
        return self.log.log.end_offset_of_term(epoch)

    async def delete_records(self, offset: Offset) -> Offset:
        """Make records below `offset` unreadable; their segments go with the next retention."""
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"records of {self.place} can be deleted up to {self.high_watermark}, not {offset}"
            )
        if offset <= self.start_offset:
            return self.start_offset
        await self.log.propose_state(encode_start_moved(offset))
        return self.start_offset

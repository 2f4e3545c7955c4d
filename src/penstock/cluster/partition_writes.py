"""What the leader of a partition does for writers: stages batches, and reads them back.

Entries that hold batches which wait are not deleted: housekeeping asks `first_index`. They are not
moved elsewhere, as the bytes of scheduled messages are: a batch waits until its commit or its
expiry, not for months.
"""

from collections.abc import Callable, Sequence

from penstock.cluster.partition_fence import PartitionFence
from penstock.cluster.partition_stage import PartitionStage
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.staged_writes import StagedBatch, StagedWrites, Stages, Writer
from penstock.cluster.topic_machine import TopicMachine, decode_event, encode_write_event
from penstock.cluster.workplace import Workplace
from penstock.cluster.write_decisions import WriteDecisions, WriterDecisions
from penstock.cluster.write_events import (
    WriteDecided,
    WriteDone,
    WriteDropped,
    WriteFinished,
    WriteRefused,
    WritersForgotten,
    WriteStaged,
)
from penstock.errors import Corruption, StageFull, StageTooLarge
from penstock.record import stamp_producer

_PRODUCER_EPOCH = 0
_SEQUENCE_MASK = 0x7FFFFFFF


class PartitionWrites:
    """The writers of one partition, as far as its leader drives them."""

    def __init__(
        self,
        log: ReplicatedLog,
        machine: TopicMachine,
        workplace: Workplace,
        fence: PartitionFence,
    ) -> None:
        self._log = log
        self._fence = fence
        self._machine = machine
        self._workplace = workplace
        self._proposed_bytes = 0
        self.on_decided: Callable[[], None] = lambda: None
        log.watch(self._look)

    @property
    def staged(self) -> StagedWrites:
        """What is staged here."""
        return self._machine.writes

    @property
    def decisions(self) -> WriteDecisions:
        """What was decided here."""
        return self._machine.decisions

    def _look(self) -> None:
        """Tell of decisions that are not finished, on the leader; called after every commit."""
        if self.decisions.open and self._log.is_serving:
            self.on_decided()

    def writer(self, name: str) -> Writer | None:
        """Return what this partition knows of a writer."""
        self._log.check_serving()
        return self.staged.writers.get(name)

    def decisions_of(self, name: str) -> WriterDecisions | None:
        """Return what was decided here for a writer."""
        self._log.check_serving()
        return self.decisions.writers.get(name)

    # Staging.

    async def stage(self, event: WriteStaged, *, bytes_max: int) -> bool:
        """Keep a batch until its commit; False when the epoch is committed already."""
        self._log.check_serving()
        self._fence.check()
        size_bytes = len(event.batch)
        self._check_room(event, bytes_max)
        self._proposed_bytes += size_bytes
        try:
            staged: bool = await self._log.propose_state(encode_write_event(event))
        finally:
            self._proposed_bytes -= size_bytes
        return staged

    def _check_room(self, event: WriteStaged, bytes_max: int) -> None:
        taken = self.staged.staged_bytes + self._proposed_bytes
        if taken + len(event.batch) <= bytes_max:
            return
        writer = self.staged.writers.get(event.writer)
        run = None if writer is None else writer.runs.get(event.run)
        own = 0 if run is None else run.size_bytes
        if own + len(event.batch) > bytes_max:
            raise StageTooLarge(
                f"run {event.run!r} of writer {event.writer!r} has staged {own} bytes in"
                f" {self._log.name}, write_stage_bytes_max is {bytes_max}; write smaller epochs,"
                " into more partitions, or with mode=at_least_once"
            )
        raise StageFull(
            f"{taken} bytes are staged in {self._log.name}, write_stage_bytes_max is {bytes_max}"
        )

    async def drop(self, writer: str, run: str, *, before_ms: int) -> None:
        """Let go of what a run has staged, unless it was touched since."""
        self._log.check_serving()
        found = self.staged.writers.get(writer)
        if found is not None and run in found.runs:
            event = WriteDropped(writer, run, before_ms)
            await self._log.propose_state(encode_write_event(event))

    # Publishing.

    def unpublished(self, name: str, run: str, stages: Stages) -> list[tuple[StagedBatch, int]]:
        """Return the batches of a run that are not in the log, with their sequence numbers."""
        batches = self.staged.batches(name, run, stages)
        writer = self.staged.writers.get(name)
        published = 0 if writer is None else writer.published
        sequence = 0 if writer is None else writer.sequence
        found = []
        for batch in batches:
            if published <= 0:
                found.append((batch, sequence))
            published -= batch.records
            sequence = (sequence + batch.records) & _SEQUENCE_MASK
        assert published <= 0, "no more is published than was staged"
        return found

    async def read(
        self, producer_id: int, batches: Sequence[tuple[StagedBatch, int]]
    ) -> list[memoryview]:
        """Return the bytes of batches, numbered as those of the writer."""
        return await self._workplace.in_thread(
            lambda: [self._read(producer_id, batch, sequence) for batch, sequence in batches]
        )

    def _read(self, producer_id: int, batch: StagedBatch, sequence: int) -> memoryview:
        event = decode_event(self._log.log.payload_at(batch.index)[1])
        if not isinstance(event, WriteStaged):
            raise Corruption(f"entry {batch.index} of {self._log.name} holds no staged batch")
        data = memoryview(bytearray(event.batch))
        stamp_producer(
            data,
            producer_id=producer_id,
            producer_epoch=_PRODUCER_EPOCH,
            base_sequence=sequence,
        )
        return data

    async def done(self, writer: str, epoch: int, *, sequence: int, at_ms: int) -> None:
        """Note that all of an epoch is in the log."""
        await self._log.propose_state(encode_write_event(WriteDone(writer, epoch, sequence, at_ms)))

    # Deciding, where this is a writer's home.

    async def decide(self, event: WriteDecided) -> WriteDecided | None:
        """Let a run count; return the decision that holds, None when the epoch is finished."""
        self._fence.check()
        held = await self._log.propose_state(encode_write_event(event))
        return held if isinstance(held, WriteDecided) else None

    async def refuse(self, event: WriteRefused) -> bool:
        """Let a run never count; False when it was decided before."""
        refused: bool = await self._log.propose_state(encode_write_event(event))
        return refused

    async def finish(self, writer: str, epoch: int, *, at_ms: int) -> None:
        """Note that all partitions of a decision are done."""
        await self._log.propose_state(encode_write_event(WriteFinished(writer, epoch, at_ms)))

    async def forget(self, before_ms: int) -> None:
        """Forget writers of whom nobody heard since."""
        touched = [writer.touched_ms for writer in self.staged.writers.values()]
        touched += [writer.touched_ms for writer in self.decisions.writers.values()]
        if min(touched, default=before_ms) < before_ms:
            await self._log.propose_state(encode_write_event(WritersForgotten(before_ms)))


class StagedEntries:
    """All entries of a partition that are read again: scheduled messages and staged batches."""

    def __init__(self, stage: PartitionStage, writes: PartitionWrites) -> None:
        self._stage = stage
        self._writes = writes

    @property
    def first_index(self) -> int | None:
        """The oldest entry that is still read."""
        indexes = (self._stage.first_index, self._writes.staged.first_index)
        return min((index for index in indexes if index is not None), default=None)

    async def restage_below(self, index: int) -> None:
        """Move the bytes of scheduled messages out of entries before `index`."""
        await self._stage.restage_below(index)

    async def entries_removed(self) -> None:
        """Forget what is known about records that are gone."""
        await self._stage.entries_removed()

"""What writers have staged in one partition, and how much of it is published.

The batches stay where they are on disk, in the entries that brought them; this keeps the index of
each. The state is built by committed entries alone and is the same on every replica.

A commit publishes the batches of the run that counts as those of an idempotent producer, which the
writer is in this partition, and then says that the epoch is done. Crash cases:

- Between two batches: how many records of the epoch are in the log is counted here, as they are
  applied. Whoever leads next goes on behind them, and cannot publish one twice.
- Between the last batch and `WriteDone`: the same, with nothing left to publish.
- `WriteDone` is proposed when all batches are committed, and says where the writer goes on. It does
  not depend on what was counted: compaction may take batches that a replica which is behind has not
  seen. Those of an epoch that is not done are `remembered`, and compaction leaves them.
- A batch is staged twice, because its answer was lost: it has the same place in its stage.
- A run is staged again for an epoch that is done: it is told so, and nothing is kept.
- An older epoch comes, from a query that runs twice or goes on from an old checkpoint: fenced.
"""

import msgspec

from penstock.cluster.write_events import (
    StagedWriteEvent,
    WriteDone,
    WriteDropped,
    WriteStaged,
)
from penstock.errors import WriteNotStaged, WriterFenced
from penstock.record import BatchHeader, read_header

# What a batch takes beside its bytes, so that a limit of bytes limits small ones too.
_BATCH_OVERHEAD_BYTES = 4096

Stages = tuple[tuple[str, int], ...]


class StagedBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch that waits: the entry that holds it, and what it will take in the log."""

    index: int
    size_bytes: int
    records: int


class StagedRun(msgspec.Struct, array_like=True):
    """What one run has staged here, by stage and number."""

    epoch: int
    home: str
    touched_ms: int
    stages: dict[str, dict[int, StagedBatch]] = {}

    @property
    def size_bytes(self) -> int:
        """What the run takes of the limit."""
        return sum(_cost(batch) for stage in self.stages.values() for batch in stage.values())


class Writer(msgspec.Struct, array_like=True):
    """One writer in this partition.

    `sequence` is where its next epoch begins; `published` counts the records of that which are in
    the log, and `offsets` are those of their batches.
    """

    producer_id: int
    touched_ms: int
    done_epoch: int = -1
    sequence: int = 0
    published: int = 0
    offsets: list[int] = []
    runs: dict[str, StagedRun] = {}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Writer]).decode


class StagedWrites:
    """The writers of one partition."""

    def __init__(self) -> None:
        self.writers: dict[str, Writer] = {}
        self.staged_bytes = 0
        self._by_producer: dict[int, Writer] = {}

    @property
    def first_index(self) -> int | None:
        """The oldest entry that holds a batch which waits."""
        indexes = (
            batch.index
            for writer in self.writers.values()
            for run in writer.runs.values()
            for stage in run.stages.values()
            for batch in stage.values()
        )
        return min(indexes, default=None)

    def apply(self, event: StagedWriteEvent, index: int) -> bool:
        """Apply a committed event; False when what it asks for has happened before."""
        match event:
            case WriteStaged():
                return self._stage(event, index)
            case WriteDone():
                return self._finish(event)
            case WriteDropped():
                return self._drop(event)

    def _stage(self, event: WriteStaged, index: int) -> bool:
        writer = self.writers.get(event.writer)
        if writer is None:
            writer = self.writers[event.writer] = Writer(event.producer_id, event.at_ms)
            self._by_producer[writer.producer_id] = writer
        check_not_fenced(event.writer, event.epoch, writer.done_epoch)
        writer.touched_ms = max(writer.touched_ms, event.at_ms)
        if event.epoch == writer.done_epoch:
            return False
        run = writer.runs.setdefault(event.run, StagedRun(event.epoch, event.home, event.at_ms))
        run.touched_ms = max(run.touched_ms, event.at_ms)
        stage = run.stages.setdefault(event.stage, {})
        if event.number not in stage:
            header = read_header(event.batch)
            batch = stage[event.number] = StagedBatch(index, len(event.batch), header.offsets)
            self.staged_bytes += _cost(batch)
        return True

    def _finish(self, event: WriteDone) -> bool:
        writer = self.writers.get(event.writer)
        if writer is None or writer.done_epoch >= event.epoch:
            return False
        writer.done_epoch = event.epoch
        writer.sequence = event.sequence
        writer.published = 0
        writer.offsets.clear()
        writer.touched_ms = max(writer.touched_ms, event.at_ms)
        for name, run in list(writer.runs.items()):
            if run.epoch <= event.epoch:
                self._remove(writer, name)
        return True

    def _drop(self, event: WriteDropped) -> bool:
        writer = self.writers.get(event.writer)
        run = None if writer is None else writer.runs.get(event.run)
        if writer is None or run is None or run.touched_ms >= event.before_ms:
            return False
        self._remove(writer, event.run)
        return True

    def _remove(self, writer: Writer, run: str) -> None:
        self.staged_bytes -= writer.runs.pop(run).size_bytes

    def forget(self, before_ms: int) -> None:
        """Forget writers that wait for nothing and were not heard of since."""
        for name, writer in list(self.writers.items()):
            if not writer.runs and not writer.published and writer.touched_ms < before_ms:
                del self.writers[name]
                del self._by_producer[writer.producer_id]

    def note(self, header: BatchHeader, offset: int) -> None:
        """Count a committed batch of an idempotent producer, if it is a writer's."""
        writer = self._by_producer.get(header.producer_id)
        if writer is not None:
            writer.published += header.offsets
            writer.offsets.append(offset)

    @property
    def remembered(self) -> list[int]:
        """First offsets of batches that are counted for an epoch which is not done."""
        return [offset for writer in self.writers.values() for offset in writer.offsets]

    def batches(self, name: str, run: str, stages: Stages) -> list[StagedBatch]:
        """Return the batches of some stages in their order; raise when one is missing."""
        writer = self.writers.get(name)
        found = None if writer is None else writer.runs.get(run)
        batches = []
        for stage, count in stages:
            staged = {} if found is None else found.stages.get(stage, {})
            missing = [number for number in range(count) if number not in staged]
            if missing:
                raise WriteNotStaged(
                    f"run {run!r} of writer {name!r} has {len(staged)} batches under stage"
                    f" {stage!r}, number {missing[0]} of {count} is missing; it may have expired"
                )
            batches += [staged[number] for number in range(count)]
        return batches

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encode(self.writers)

    def restore(self, payload: bytes) -> None:
        """Replace the state by that of a snapshot."""
        self.writers = _decode(payload)
        self._by_producer = {writer.producer_id: writer for writer in self.writers.values()}
        runs = (run for writer in self.writers.values() for run in writer.runs.values())
        self.staged_bytes = sum(run.size_bytes for run in runs)


def check_not_fenced(writer: str, epoch: int, done_epoch: int) -> None:
    """Raise when an epoch comes after a newer one."""
    if epoch < done_epoch:
        raise WriterFenced(
            f"epoch {epoch} of writer {writer!r} comes after epoch {done_epoch}, which is"
            " committed; is the query running twice, or from an old checkpoint?"
        )


def _cost(batch: StagedBatch) -> int:
    return batch.size_bytes + _BATCH_OVERHEAD_BYTES

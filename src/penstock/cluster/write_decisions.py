"""Which run of an epoch counts: decided once, in one place, before any partition publishes it.

This is the state of the writer's home. It holds, for each writer, the last epoch that is published
everywhere, and the one that is decided and not finished. Crash cases:

- The driver dies before the decision: nothing was published. Its next run is decided instead, and
  what the first one staged expires.
- The driver dies after the decision: the home's leader publishes what was decided, whether or not
  anybody asks again. A driver that runs the epoch again is told of the decision, and its own run is
  not published, even where it had other rows.
- The home's leader dies: the next one finds the decision, and goes on. Partitions that are done say
  so.
- Staged batches expire: a partition asks here before it lets go of them. Where the run was decided
  they stay; where not, it is refused from then on, for good. So a decided run has all its batches.
- An epoch is decided and the answer is lost: asking again gives the same decision.
"""

import msgspec

from penstock.cluster.staged_writes import check_not_fenced
from penstock.cluster.write_events import (
    DecisionEvent,
    WriteDecided,
    WriteFinished,
    WriteRefused,
)
from penstock.errors import WriteExpired


class WriterDecisions(msgspec.Struct, array_like=True):
    """What was decided for one writer."""

    touched_ms: int
    finished_epoch: int = -1
    open: WriteDecided | None = None
    refused: list[str] = []
    finished_run: str = ""
    """Which run of the last epoch has counted."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, WriterDecisions]).decode


class WriteDecisions:
    """The decisions of one home."""

    def __init__(self) -> None:
        self.writers: dict[str, WriterDecisions] = {}
        self.open: dict[str, WriteDecided] = {}

    def apply(self, event: DecisionEvent) -> "WriteDecided | bool":
        """Apply a committed event; a decision answers with the one that holds."""
        writer = self.writers.setdefault(event.writer, WriterDecisions(event.at_ms))
        writer.touched_ms = max(writer.touched_ms, event.at_ms)
        match event:
            case WriteDecided():
                return self._decide(writer, event)
            case WriteRefused():
                return self._refuse(writer, event)
            case WriteFinished():
                return self._finish(writer, event)

    def _decide(self, writer: WriterDecisions, event: WriteDecided) -> WriteDecided | bool:
        """Return the open decision, or True when the epoch is finished."""
        check_not_fenced(event.writer, event.epoch, writer.finished_epoch)
        if event.epoch == writer.finished_epoch:
            return True
        if writer.open is None:
            if event.run in writer.refused:
                raise WriteExpired(
                    f"run {event.run!r} of epoch {event.epoch} of writer {event.writer!r} has"
                    " expired: its batches waited too long for their commit"
                )
            writer.open = self.open[event.writer] = event
        return writer.open

    def _refuse(self, writer: WriterDecisions, event: WriteRefused) -> bool:
        """Return whether the run is refused: not when it counts, as far as that is remembered."""
        is_decided = writer.open is not None and writer.open.run == event.run
        if is_decided or (event.epoch, event.run) == (writer.finished_epoch, writer.finished_run):
            return False
        if event.epoch > writer.finished_epoch and event.run not in writer.refused:
            writer.refused.append(event.run)
        return True

    def _finish(self, writer: WriterDecisions, event: WriteFinished) -> bool:
        if writer.open is None or writer.open.epoch != event.epoch:
            return False
        writer.finished_epoch = event.epoch
        writer.finished_run = writer.open.run
        writer.open = None
        writer.refused.clear()
        del self.open[event.writer]
        return True

    def forget(self, before_ms: int) -> None:
        """Forget writers of whom nobody heard since, and for whom nothing is open."""
        for name, writer in list(self.writers.items()):
            if writer.open is None and writer.touched_ms < before_ms:
                del self.writers[name]

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encode(self.writers)

    def restore(self, payload: bytes) -> None:
        """Replace the state by that of a snapshot."""
        self.writers = _decode(payload)
        self.open = {
            name: writer.open for name, writer in self.writers.items() if writer.open is not None
        }

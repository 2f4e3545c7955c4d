"""How far a partition's files are known to be durable.

A checkpoint is written only after the data that it speaks of was synced, and it is never synced
itself: after a power cut an older one may be found, so it can lag behind the disk but never lead.

Recovery trusts everything below the checkpoint and scans only what lies above.
"""

from pathlib import Path
from typing import NamedTuple

from penstock.log.disk import Disk
from penstock.log.slots import SlotFile

FILE_NAME = "checkpoint"


class Checkpoint(NamedTuple):
    """Durable sizes of one segment; earlier segments are durable whole."""

    first_index: int
    rows: int
    log_bytes: int
    state_bytes: int


class CheckpointFile:
    """Keeps the newest checkpoint of a partition."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._slots = SlotFile(disk, directory / FILE_NAME, "qqqq")

    @property
    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that was found or written."""
        newest = self._slots.newest
        return None if newest is None else Checkpoint(*newest)

    def write(self, *, first_index: int, rows: int, log_bytes: int, state_bytes: int) -> None:
        """Record sizes whose sync has returned."""
        self._slots.write(first_index, rows, log_bytes, state_bytes)

    def withdraw(self) -> None:
        """Forget all checkpoints, durably, before the log is cut below them."""
        self._slots.clear()

    def close(self) -> None:
        """Close the file."""
        self._slots.close()

"""Term and vote of a replica, which must survive a crash before any message reveals them.

Unlike a checkpoint, they are synced before `save` returns: a replica that forgot a vote could vote
twice. A write that a crash tore leaves the one before, and then `save` had not returned.

What is found at the start may sit in the page cache only, where a killed process or one whose sync
had failed has left it, and so may the name of the file. The replica is going to act on it, so it is
made durable first: otherwise a power cut would take back a vote that was given out.

A new file gets its full size at once, and is written in place from then on: a disk that is full has
no room for records, but a vote can be given all the same.
"""

from pathlib import Path
from typing import NamedTuple

from penstock.log.disk import Disk
from penstock.log.segment import sync_file, sync_names
from penstock.log.slots import SlotFile

FILE_NAME = "vote"
_NOBODY = -1


class SavedHardState(NamedTuple):
    """What was saved last; a vote of -1 stands for none."""

    term: int
    vote: int
    commit: int


class HardStateFile:
    """Keeps the hard state of one replica."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._slots = SlotFile(disk, self.path, "qqq")
        self.was_blank = self._slots.newest is None
        """Whether nothing was found: the replica is new, or its file was lost."""
        self._slots.write(*self.newest)
        sync_file(self._slots.file)
        sync_names(disk, directory)

    @property
    def newest(self) -> SavedHardState:
        """What was saved last."""
        newest = self._slots.newest
        return SavedHardState(0, _NOBODY, 0) if newest is None else SavedHardState(*newest)

    def save(self, *, term: int, vote: int | None, commit: int) -> None:
        """Save durably; raises `StorageFailed` when the disk cannot."""
        self._slots.write(term, _NOBODY if vote is None else vote, commit)
        sync_file(self._slots.file)

    def close(self) -> None:
        """Close the file."""
        self._slots.close()

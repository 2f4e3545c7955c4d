"""How far a log may have reached before recovery cut its end.

A row outlived its payload. Either a power cut tore a write that nobody was told of, or bytes of the
last flush have rotted that somebody was told of; the files look the same. So the end is cut, and
the claim of the last such row is kept: a replica must not help a leader into office whose log is
shorter than what this one may have acknowledged.

The claim is durable before the rows that make it are cut. It stays on disk: as soon as the log has
reached it again, or holds an entry of a newer term, it says nothing that the log does not say.
"""

from pathlib import Path
from typing import NamedTuple

from penstock.ids import EntryIndex, Term
from penstock.log.disk import Disk
from penstock.log.segment import sync_file, sync_names
from penstock.log.slots import SlotFile

FILE_NAME = "doubt"


class Doubt(NamedTuple):
    """The last entry that a log may once have held; terms come first, as in an election."""

    last_term: Term
    last_index: EntryIndex


def load_doubt(disk: Disk, directory: Path) -> Doubt:
    """Return the claim that was saved last; zeros when there is none."""
    if not disk.exists(directory / FILE_NAME):
        return Doubt(Term(0), EntryIndex(0))
    slots = SlotFile(disk, directory / FILE_NAME, "qq")
    slots.close()
    term, index = slots.newest or (0, 0)
    return Doubt(Term(term), EntryIndex(index))


def save_doubt(disk: Disk, directory: Path, doubt: Doubt) -> None:
    """Keep a claim durably, unless a larger one is kept already."""
    if doubt <= load_doubt(disk, directory):
        return
    slots = SlotFile(disk, directory / FILE_NAME, "qq")
    slots.write(*doubt)
    sync_file(slots.file)
    sync_names(disk, directory)
    slots.close()

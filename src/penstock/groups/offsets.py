"""Committed positions: what may be stored, what may be deleted, what has had its time."""

from collections.abc import Callable, Mapping

from penstock.errors import GroupSubscribedToTopic, MetadataTooLarge, PenstockError
from penstock.groups.commands import CommitOffsets
from penstock.groups.events import OffsetRow, OffsetsSaved
from penstock.groups.inheritance import era_of, id_of
from penstock.groups.limits import GroupLimits
from penstock.groups.subscription import Catalog
from penstock.ids import TopicPartition

Refusals = dict[TopicPartition, PenstockError]


def to_save(
    command: CommitOffsets, limits: GroupLimits, catalog: Catalog | None, now_ms: int
) -> tuple[OffsetsSaved, Refusals]:
    """One record for everything that can be stored, and the reasons for the rest."""
    refused: Refusals = {}
    rows = []
    for entry in command.offsets:
        # UTF-8 takes four bytes for a character at most: the usual short note is not encoded.
        note = entry.note
        if len(note) * 4 > limits.offset_note_bytes_max:
            size = len(note.encode())
            if size > limits.offset_note_bytes_max:
                error = MetadataTooLarge(f"{size} bytes, not {limits.offset_note_bytes_max}")
                refused[TopicPartition(entry.topic, entry.partition)] = error
                continue
        row = OffsetRow(
            entry.topic,
            entry.partition,
            entry.offset,
            entry.leader_epoch,
            note,
            now_ms,
            era_of(entry.topic, catalog),
            id_of(entry.topic, catalog),
        )
        rows.append(row)
    return OffsetsSaved(command.group_id, tuple(rows)), refused


def deletable(
    partitions: tuple[TopicPartition, ...], is_read: Callable[[str], bool]
) -> tuple[list[TopicPartition], Refusals]:
    """Part the partitions into those that nobody reads and those that are refused."""
    read = {topic for topic in {key.topic for key in partitions} if is_read(topic)}
    refused: Refusals = {
        key: GroupSubscribedToTopic(f"the group reads {key.topic}")
        for key in partitions
        if key.topic in read
    }
    return [key for key in partitions if key not in refused], refused


def expired(
    offsets: Mapping[TopicPartition, OffsetRow], since_ms: int, until_ms: int
) -> list[TopicPartition]:
    """The positions whose retention, counted from `since_ms` at the earliest, is over."""
    if since_ms > until_ms:
        return []
    return [key for key, row in offsets.items() if row.commit_ms <= until_ms]

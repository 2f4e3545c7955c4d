"""The durable half of a shard: what the committed events say, and nothing else."""

from collections.abc import Iterator
from typing import assert_never

from penstock.groups.events import (
    ClassicSaved,
    ConsumerRow,
    ConsumerSaved,
    GroupRemoved,
    MemberRemoved,
    MemberSaved,
    OffsetRow,
    OffsetsRemoved,
    OffsetsSaved,
    Record,
    TopicsForgotten,
)
from penstock.ids import TopicPartition

Offsets = dict[TopicPartition, OffsetRow]


class Ledger:
    """Rows of groups, members and offsets. Equal records in equal order make equal ledgers."""

    def __init__(self) -> None:
        self.groups: dict[str, ClassicSaved | ConsumerSaved] = {}
        self.members: dict[str, dict[str, ConsumerRow]] = {}
        self.offsets: dict[str, Offsets] = {}

    def apply(self, record: Record) -> None:
        """Take one committed record in."""
        match record:
            case OffsetsSaved():
                self._save_offsets(record)
            case MemberSaved(group_id, member):
                self.members.setdefault(group_id, {})[member.member_id] = member
            case MemberRemoved(group_id, member_id):
                self._remove_member(group_id, member_id)
            case ConsumerSaved(group_id):
                self.groups[group_id] = record
            case ClassicSaved(group_id):
                self.groups[group_id] = record
                self.members.pop(group_id, None)
            case GroupRemoved(group_id):
                self.groups.pop(group_id, None)
                self.members.pop(group_id, None)
                self.offsets.pop(group_id, None)
            case OffsetsRemoved(group_id, partitions):
                self._remove_offsets(group_id, [TopicPartition(*key) for key in partitions])
            case TopicsForgotten(topics):
                self._forget_topics(frozenset(topics))
            case _:
                assert_never(record)

    def excerpt(self, group_id: str) -> "Ledger":
        """A ledger of its own with nothing but this group and its members."""
        excerpt = Ledger()
        if group_id in self.groups:
            excerpt.groups[group_id] = self.groups[group_id]
        if group_id in self.members:
            excerpt.members[group_id] = dict(self.members[group_id])
        return excerpt

    def records(self) -> Iterator[Record]:
        """The records that lead an empty ledger to this one."""
        yield from self.groups.values()
        for group_id, members in self.members.items():
            for member in members.values():
                yield MemberSaved(group_id, member)
        for group_id, offsets in self.offsets.items():
            yield OffsetsSaved(group_id, tuple(offsets.values()))

    def _save_offsets(self, record: OffsetsSaved) -> None:
        # A member may commit before its group's first generation is saved.
        if record.group_id not in self.groups:
            self.groups[record.group_id] = _unmanaged(record.group_id)
        offsets = self.offsets.setdefault(record.group_id, {})
        for row in record.offsets:
            offsets[TopicPartition(row.topic, row.partition)] = row

    def _remove_member(self, group_id: str, member_id: str) -> None:
        members = self.members.get(group_id, {})
        members.pop(member_id, None)
        if not members:
            self.members.pop(group_id, None)

    def _remove_offsets(self, group_id: str, partitions: list[TopicPartition]) -> None:
        offsets = self.offsets.get(group_id, {})
        for partition in partitions:
            offsets.pop(partition, None)
        if not offsets:
            self.offsets.pop(group_id, None)

    def _forget_topics(self, topics: frozenset[str]) -> None:
        for group_id in list(self.offsets):
            gone = [key for key in self.offsets[group_id] if key.topic in topics]
            self._remove_offsets(group_id, gone)


def _unmanaged(group_id: str) -> ClassicSaved:
    """A group that only keeps offsets."""
    return ClassicSaved(group_id, 0, "", None, None, (), None)

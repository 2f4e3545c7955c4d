"""What must hold for every group of a fleet, whoever replicates it."""

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

from crc32c import crc32c

from penstock.broker.groups import ShardMachine
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.topic_machine import TopicMachine
from penstock.raft import Entry, EntryKind, Member, Role
from penstock.record import split_batches
from tests.simulation.fleet.node import FleetNode
from tests.simulation.fleet.queue_books import COPY, PartitionBooks, Shelf
from tests.simulation.members import GroupsBooks
from tests.simulation.referee import require

_VALUE = re.compile(rb"<value \d+>")


def value_of(number: int) -> bytes:
    """What a message holds; no two are the same."""
    return b"<value %d>" % number


def content_of(log: ReplicatedLog) -> bytes:
    """All records of a replica, as they are stored."""
    parts = []
    offset, end = log.log.first_offset, log.high_watermark
    while (found := log.log.read(offset, end_offset=end, bytes_max=1 << 20)) is not None:
        parts.append(found.read())
        offset = split_batches(memoryview(parts[-1]))[-1].header.next_offset
    return b"".join(parts)


class FleetReferee:
    """Watches all groups of all nodes."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[int, int], Member] = {}
        """Who led a group in a term."""
        self.applied: dict[tuple[int, int], tuple[int, int]] = {}
        """The term and the checksum of every entry that was ever applied."""
        self.groups_of: defaultdict[bytes, set[int]] = defaultdict(set)
        """The groups in whose logs a value was committed."""
        self.scheduled_in: dict[bytes, int] = {}
        """The group in whose stage a value was committed to wait for its time."""
        self.topic_of: dict[int, UUID] = {}
        """The topic of a group, also of one that is deleted by now."""
        self.shelf = Shelf()
        self.shards: defaultdict[int, GroupsBooks] = defaultdict(GroupsBooks)
        """The books of each shard of consumer groups."""
        self._versions: dict[int, tuple[object, int]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See every entry that any replica applies."""
        apply = ReplicatedLog._apply_entry

        def watched(log: ReplicatedLog, entry: Entry) -> None:
            self._check_applied(log, entry)
            apply(log, entry)

        with patch.object(ReplicatedLog, "_apply_entry", watched), self.shelf.watching():
            yield

    def _check_applied(self, log: ReplicatedLog, entry: Entry) -> None:
        group = log.identity.group
        payload: Any = entry.payload
        found = (int(entry.term), crc32c(payload))
        known = self.applied.get((group, entry.index))
        if known is None:
            self.applied[group, entry.index] = found
            self._commit(log, entry)
        else:
            require(known == found, "two replicas apply different entries", log.name, group, entry)

    def _commit(self, log: ReplicatedLog, entry: Entry) -> None:
        """An entry is applied for the first time."""
        payload: Any = entry.payload
        group = log.identity.group
        if entry.kind is EntryKind.RECORDS and COPY not in bytes(payload):
            for value in _VALUE.findall(payload):
                self.groups_of[value].add(group)
        if isinstance(log.machine, TopicMachine):
            if entry.kind is EntryKind.STATE:
                self.scheduled_in.update(dict.fromkeys(_VALUE.findall(payload), group))
            self.shelf.commit(log, entry)
        elif isinstance(log.machine, ShardMachine):
            self.shards[group].commit(entry, int(entry.term))

    def books_of(self, value: bytes | None, offset: int) -> PartitionBooks:
        """Return the books of the partition that a message which went out was published to."""
        groups = self.groups_of.get(value or b"", set())
        require(len(groups) == 1, "a message is delivered that nobody published", value, groups)
        books = self.shelf.by_group[next(iter(groups))]
        found = books.messages.get(offset)
        is_same = found is not None and found.record.value == value
        require(is_same, "a message is not the record at its offset", offset, value, found)
        return books

    def books_of_scheduled(self, value: bytes) -> PartitionBooks:
        """Return the books of the partition where a message was to wait."""
        group = self.scheduled_in.get(value)
        require(group is not None, "a scheduled message was acknowledged and never stored", value)
        assert group is not None
        return self.shelf.by_group[group]

    def check(self, node: FleetNode) -> None:
        """Look at one node after an event."""
        if self.shelf.violation is not None:
            raise self.shelf.violation
        broker = node.broker
        if broker is None:
            return
        for group, log in broker.cluster.replicas.by_group.items():
            raft = log.raft
            if raft.role is Role.LEADER and log.failure is None:
                member = self.leaders.setdefault((group, raft.term), log.identity.member)
                require(
                    member == log.identity.member, "two lead in one term", group, raft.term, member
                )
        seen = (broker, broker.metadata.version)
        if self._versions.get(node.name) != seen:
            self._versions[node.name] = seen
            for topic in broker.metadata.topics.values():
                self.shelf.learn(topic)
                for replicas in topic.replicas:
                    self.topic_of[replicas.group] = topic.topic_id

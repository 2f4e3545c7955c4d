"""What committed entries mean for the queue groups of a fleet: books for each partition.

They are those of histories of one group (`tests.simulation.books`), told every entry when the first
replica applies it. First applications come in the order of the log, whoever makes them: a replica
that begins with a snapshot has it from one that has applied what lies before.

What a leader hands out is compared with what it must know: everything that terms before its own
have made final, and of its own term what it has applied. A leader that is deposed and does not know
it yet must not hand out what was acked elsewhere meanwhile: consumers look after that.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

from penstock.cluster import PartitionQueue, Topic
from penstock.cluster.deliveries import Delivery
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.delivery import (
    Acked,
    DeliveryEvent,
    Extended,
    GroupSettings,
    OrderMode,
    Rejected,
    Returned,
)
from penstock.raft import Entry
from penstock.record import IDEMPOTENCY_KEY, Record
from tests.simulation.books import Books, Moment
from tests.simulation.referee import Violation, require

COPY = b"penstock-dlq-group"
"""Stands in every dead letter."""


class PartitionBooks(Books):
    """The messages of one partition, whose dead letters are in another one."""

    def __init__(self, shelf: "Shelf", group: int) -> None:
        super().__init__(defaultdict(lambda: GroupSettings(order=shelf.order_of[group])))
        self._shelf = shelf
        # Handovers and failed disks are part of every history.
        self.may_lose_leases = True

    def _commit_delivery(self, event: DeliveryEvent, at: Moment) -> None:
        # A receipt may outlive its topic, and come to one of the same name that is new.
        is_answer = isinstance(event, (Acked, Extended, Rejected, Returned))
        if event.group in self.groups or not is_answer:
            super()._commit_delivery(event, at)

    def _see_copy(self, record: Record) -> None:
        key = dict(record.headers).get(IDEMPOTENCY_KEY) or b""
        if COPY in (name.encode() for name, _ in record.headers):
            self._shelf.source_of(key.decode()).check_copy(record)

    def check_copy(self, record: Record) -> None:
        """A dead letter is committed that says it comes from here."""
        super()._see_copy(record)


class Shelf:
    """The books of all partitions that ever were."""

    def __init__(self) -> None:
        self.by_group: dict[int, PartitionBooks] = {}
        self.group_of: dict[tuple[UUID, int], int] = {}
        """The raft group of each partition, also of those that are deleted by now."""
        self.order_of: dict[int, OrderMode] = {}
        self.violation: Violation | None = None
        """What was found where nobody would hear of it."""

    def learn(self, topic: Topic) -> None:
        """A node has heard of a topic."""
        order = OrderMode(topic.settings.get("delivery.order", OrderMode.PARALLEL))
        for number, replicas in enumerate(topic.replicas):
            self.group_of[topic.topic_id, number] = replicas.group
            self.order_of[replicas.group] = order

    def source_of(self, key: str) -> PartitionBooks:
        """Return the books of the partition that a dead letter comes from."""
        topic, partition, *_ = key.split("/")
        return self.by_group[self.group_of[UUID(topic), int(partition)]]

    def commit(self, log: ReplicatedLog, entry: Entry) -> None:
        """An entry of a partition is applied for the first time."""
        self._books(log).commit(entry, int(entry.term))

    def _books(self, log: ReplicatedLog) -> PartitionBooks:
        group = log.identity.group
        books = self.by_group.get(group)
        if books is None:
            books = self.by_group[group] = PartitionBooks(self, group)
        return books

    def clock_jumps(self, now_ms: int) -> None:
        """A clock is set that shows this time."""
        for books in self.by_group.values():
            books.latest_ms = max(books.latest_ms, now_ms)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See everything that any leader hands out."""
        receive = PartitionQueue.receive_nowait

        def watched(queue: PartitionQueue, group: str, **asked: Any) -> Delivery | None:
            now = Moment(queue.log.term, queue.log.applied_index)
            delivery = receive(queue, group, **asked)
            if delivery is not None:
                self._hand_out(queue, group, delivery, now)
            return delivery

        with patch.object(PartitionQueue, "receive_nowait", watched):
            yield

    def _hand_out(self, queue: PartitionQueue, group: str, delivery: Delivery, now: Moment) -> None:
        try:
            self._books(queue.log).hand_out(group, delivery, now)
        except Violation as violation:
            # The task of a link that runs this for another node keeps it to itself.
            self.violation = self.violation or violation
            raise


class Settled:
    """What consumers were told is settled: whoever asks after that does not get it."""

    def __init__(self) -> None:
        self.count = 0
        self._first: dict[tuple[str, PartitionBooks, int], int] = {}

    def note(self, group: str, books: PartitionBooks, offset: int) -> None:
        """An ack was accepted."""
        self.count += 1
        self._first.setdefault((group, books, offset), self.count)

    def check_open(self, group: str, books: PartitionBooks, offset: int, known: int) -> None:
        """A message has come to one who asked when so many acks were accepted."""
        first = self._first.get((group, books, offset))
        is_open = first is None or first > known
        require(is_open, "a message comes back that was acked before", group, offset)

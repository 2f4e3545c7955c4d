"""Receiving messages of queue groups and answering for them, on any node.

A topic's partitions are led by several nodes. A receive asks one node after the other, beginning
with another each time, and takes what the first one has that has anything. Answers go to the
partition that the receipt names. Every verb runs on the partition's leader, here or elsewhere.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from penstock.broker.arrivals import Arrivals
from penstock.broker.calls import Calls
from penstock.broker.journals import Journals
from penstock.broker.queue_groups import QueueGroups
from penstock.broker.queue_values import (
    Exchanged,
    Message,
    Outcome,
    PlainMessages,
    TopicReceipt,
    check_number,
)
from penstock.broker.settlement import Settlement
from penstock.broker.traces import Traces
from penstock.cluster import LEASE_MS_MAX, Cluster, Delivery, PartitionQueue
from penstock.errors import DiskFull, InvalidRequest, NotLeader, PenstockError, Unavailable
from penstock.ids import TopicPartition
from penstock.record import PRIORITY_NORMAL, Record, attributes_of

T = TypeVar("T")

COUNT_MAX = 10_000
WAIT_MS_MAX = 60_000
_CONSUMER_BYTES_MAX = 249
# A wait that found something for others only is followed by a pause.
_VAIN_PAUSE_S = 0.01


class _Receive(msgspec.Struct, frozen=True):
    topic: str
    group: str
    partitions: list[int]
    count_max: int
    lease_ms: int | None
    consumer: str
    consumer_in_flight_max: int | None


class Queues:
    """The verbs of queue groups."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        self.arrivals = Arrivals(cluster, calls)
        self._groups = QueueGroups(cluster, calls)
        settlement = Settlement(cluster, calls)
        self.ack = settlement.ack
        self.ack_late = settlement.ack_late
        self.ack_any = settlement.ack_any
        self.nack = settlement.nack
        self.extend = settlement.extend
        self.reject = settlement.reject
        self.groups = self._groups.groups
        self.settings_of = self._groups.settings_of
        self.create_group = self._groups.create
        self.configure_group = self._groups.configure
        self.delete_group = self._groups.delete
        self.reset_group = self._groups.reset
        self.purge = self._groups.purge
        self.status = self._groups.status
        self.in_flight = self._groups.in_flight
        self.trace = Traces(cluster, calls).trace
        self.journal = Journals(cluster, calls).read
        self._topic_turn = itertools.count()
        self._node_turn = itertools.count()
        self._partition_turn = itertools.count()
        # By topic: the version of what is known, and partitions by the node that leads them.
        self._leaders: dict[str, tuple[int, list[tuple[int, list[int]]]]] = {}
        calls.serve("queue.receive", _Receive, self._receive_here)

    # Receiving.

    async def receive(
        self,
        topic: str,
        group: str,
        *,
        count_max: int,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        consumer: str = "",
        consumer_in_flight_max: int | None = None,
    ) -> list[Message]:
        """Return messages, waiting up to `wait_ms` for the first; none is a normal answer."""
        return await self.receive_any(
            [topic],
            group,
            count_max=count_max,
            wait_ms=wait_ms,
            lease_ms=lease_ms,
            consumer=consumer,
            consumer_in_flight_max=consumer_in_flight_max,
        )

    async def receive_any(
        self,
        topics: Sequence[str],
        group: str,
        *,
        count_max: int,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        consumer: str = "",
        consumer_in_flight_max: int | None = None,
    ) -> list[Message]:
        """Return messages of the first of these topics that has any.

        Each receive begins with another topic, so that none waits for the end of another.
        """
        requests = [
            _Receive(topic, group, [], count_max, lease_ms, consumer, consumer_in_flight_max)
            for topic in _in_turn(topics, self._topic_turn)
        ]
        _check(requests[0], wait_ms)
        await self._make_sure_of_groups(requests)
        return list(await self._receive_within(requests, wait_ms))

    async def receive_or_fail(
        self, topic: str, group: str, *, count_max: int, lease_ms: int, consumer: str
    ) -> Sequence[Message]:
        """Receive what is there; nothing is the word of all partitions, and raised otherwise."""
        request = _Receive(topic, group, [], count_max, lease_ms, consumer, None)
        _check(request, 0)
        await self._make_sure_of_groups([request])
        messages, failure = await self._look_everywhere(request)
        if failure is not None:
            raise failure
        return messages

    def ack_and_receive(
        self,
        topic: str,
        group: str,
        receipts: Sequence[str],
        *,
        count_max: int,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        consumer: str = "",
    ) -> Coroutine[Any, Any, Exchanged]:
        """Ack messages, and receive the next ones; the acks are durable when this returns.

        What is there goes out before the acks are committed, so that one flush carries both. What
        waits for the acks, because of the group's order or of a limit, goes out after them.
        """
        request = _Receive(topic, group, [], count_max, lease_ms, consumer, None)
        return self._exchange([request], partial(self.ack, topic, group, receipts), wait_ms)

    def ack_and_receive_any(
        self,
        topics: Sequence[str],
        group: str,
        receipts: Sequence[TopicReceipt],
        *,
        count_max: int,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        consumer: str = "",
    ) -> Coroutine[Any, Any, Exchanged]:
        """The same with several topics; what is acked may be of others than these."""
        requests = [
            _Receive(topic, group, [], count_max, lease_ms, consumer, None)
            for topic in _in_turn(topics, self._topic_turn)
        ]
        return self._exchange(requests, partial(self.ack_any, group, receipts), wait_ms)

    async def _exchange(
        self,
        requests: Sequence[_Receive],
        ack: Callable[[], Awaitable[list[Outcome]]],
        wait_ms: int,
    ) -> Exchanged:
        _check(requests[0], wait_ms)
        await self._make_sure_of_groups(requests)
        # Whoever asks must hear what became of the acks, and hears of trouble by asking again.
        try:
            messages = await self._receive_now(requests)
        except Unavailable:
            messages = []
        outcomes = await ack()
        if not messages:
            with suppress(Unavailable):
                messages = await self._receive_within(requests, wait_ms)
        return Exchanged(outcomes, messages)

    async def _make_sure_of_groups(self, requests: Sequence[_Receive]) -> None:
        """Begin groups that are new."""
        for request in requests:
            if not self._groups.is_known(request.topic, request.group):
                await self._groups.create(request.topic, request.group)

    async def _receive_within(
        self, requests: Sequence[_Receive], wait_ms: int
    ) -> Sequence[Message]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        while True:
            messages = await self._receive_now(requests)
            if messages or loop.time() >= until_s:
                return messages
            topics = [each.topic for each in requests]
            await self.wait_any(topics, requests[0].group, requests[0].consumer, until_s=until_s)

    def _receive_now(self, requests: Sequence[_Receive]) -> Coroutine[Any, Any, Sequence[Message]]:
        """Return what the first of the topics has that has anything."""
        if len(requests) == 1:
            return self._receive_anywhere(requests[0])
        return self._receive_first(requests)

    async def _receive_first(self, requests: Sequence[_Receive]) -> Sequence[Message]:
        for request in requests:
            messages = await self._receive_anywhere(request)
            if messages:
                return messages
        return []

    async def wait_any(
        self,
        topics: Sequence[str],
        group: str,
        consumer: str,
        *,
        until_s: float,
        awaits_topics: bool = False,
    ) -> None:
        """Return when one of these topics may have something, or when there may be others."""
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        wanted = {topic: dict(self._by_leader(topic)) for topic in topics}
        await self.arrivals.wait(
            wanted, group, consumer, until_s=until_s, awaits_topics=awaits_topics
        )
        if loop.time() - begin_s < _VAIN_PAUSE_S / 10:
            await asyncio.sleep(_VAIN_PAUSE_S)

    async def _receive_anywhere(self, request: _Receive) -> Sequence[Message]:
        messages, failure = await self._look_everywhere(request)
        if isinstance(failure, DiskFull):
            # Waiting does not help; a change of leaders passes by itself.
            raise failure
        return messages

    async def _look_everywhere(
        self, request: _Receive
    ) -> tuple[Sequence[Message], PenstockError | None]:
        """Return what is there; when that is nothing, also why some partition was not asked."""
        by_leader = self._by_leader(request.topic)
        messages: Sequence[Message]
        failure: PenstockError | None = None
        for node, partitions in _in_turn(by_leader, self._node_turn):
            try:
                if node == self._cluster.member.node:
                    messages = await self._collect(request, partitions)
                else:
                    messages = await self._receive_from(node, request, partitions)
            except Unavailable as error:
                failure = error
                continue
            if messages:
                return messages, None
        led = sum(len(partitions) for _, partitions in by_leader)
        if failure is None and led < self._cluster.metadata.topic(request.topic).partitions:
            failure = NotLeader(f"a partition of {request.topic} has no leader at the moment")
        return [], failure

    async def _receive_from(
        self, node: int, request: _Receive, partitions: list[int]
    ) -> list[Message]:
        asked = msgspec.structs.replace(request, partitions=partitions)
        place = TopicPartition(request.topic, partitions[0])
        messages = await self._calls.ask(place, "queue.receive", asked, list[Message])
        if messages:
            self.arrivals.found(node, request.topic, request.group)
        return messages

    def _by_leader(self, topic: str) -> list[tuple[int, list[int]]]:
        """Return the nodes that lead partitions of the topic, each with those that it leads."""
        version = self._cluster.version
        known = self._leaders.get(topic)
        if known is not None and known[0] == version:
            return known[1]
        by_leader: dict[int, list[int]] = {}
        for number, replicas in enumerate(self._cluster.metadata.topic(topic).replicas):
            leader = self._cluster.leaders.leader_of(replicas.group)
            if leader is not None and leader.node >= 0:
                by_leader.setdefault(leader.node, []).append(number)
        found = sorted(by_leader.items())
        self._leaders[topic] = (version, found)
        return found

    async def close(self) -> None:
        """Stop waiting for other nodes."""
        await self.arrivals.close()

    async def _receive_here(self, request: _Receive) -> list[Message]:
        return list(await self._collect(request, request.partitions))

    async def _collect(self, request: _Receive, partitions: list[int]) -> Sequence[Message]:
        """Collect messages from partitions that this node leads, beginning with any."""
        messages: Sequence[Message] = ()
        failure: PenstockError | None = None
        for number in _in_turn(partitions, self._partition_turn):
            try:
                queue = self._cluster.partition(TopicPartition(request.topic, number)).queue
                if request.group not in queue.groups:
                    await queue.create_group(request.group, queue.start_offset)
                if not queue.log.is_alone:
                    await queue.wait_ready(request.group, request.consumer)
                delivery = queue.receive_nowait(
                    request.group,
                    count_max=request.count_max - len(messages),
                    lease_ms=request.lease_ms,
                    consumer=request.consumer,
                    consumer_in_flight_max=request.consumer_in_flight_max,
                )
            except PenstockError as error:
                # One partition that is in trouble does not keep the others from being served.
                failure = error
                continue
            if delivery is not None:
                found = _messages(queue, request.group, delivery)
                messages = [*messages, *found] if messages else found
                if len(messages) >= request.count_max:
                    break
        if failure is not None and not messages:
            raise failure
        return messages


def _check(request: _Receive, wait_ms: int) -> None:
    """Raise `InvalidRequest` when a request asks for too much."""
    check_number("count_max", request.count_max, 1, COUNT_MAX)
    check_number("wait_ms", wait_ms, 0, WAIT_MS_MAX)
    if request.lease_ms is not None:
        check_number("lease_ms", request.lease_ms, 0, LEASE_MS_MAX)
    if len(request.consumer.encode()) > _CONSUMER_BYTES_MAX:
        raise InvalidRequest(
            f"the consumer's name has {len(request.consumer.encode())} bytes, at most"
            f" {_CONSUMER_BYTES_MAX} are allowed"
        )


def _in_turn(items: Sequence[T], turn: Iterator[int]) -> Sequence[T]:
    """Return items in their order, beginning with another one each time."""
    if len(items) < 2:
        return items
    first = next(turn) % len(items)
    return [*items[first:], *items[:first]]


def _messages(queue: PartitionQueue, group: str, delivery: Delivery) -> Sequence[Message]:
    topic, partition = queue.place
    at_ms, until_ms = delivery.at_ms, delivery.until_ms
    sign = f"{partition:x}.{delivery.number:x}."
    if delivery.is_plain:
        return PlainMessages(topic, partition, sign, at_ms, until_ms, delivery.records)
    ledger = queue.ledger(group)
    messages = []
    for record, attempt in zip(delivery.records, delivery.attempts, strict=True):
        offset = record.offset
        message_id, priority, first_ms = None, PRIORITY_NORMAL, at_ms
        if attempt > 1:
            first_ms = ledger.first_delivered_ms(offset) or at_ms
        if record.headers:
            message_id, priority = _marks(record)
        messages.append(
            Message(
                topic,
                partition,
                offset,
                message_id or f"{partition}-{offset}",
                f"{sign}{offset:x}",
                attempt,
                first_ms,
                until_ms,
                record.timestamp,
                priority,
                record.key,
                record.value,
                record.headers,
            )
        )
    return messages


def _marks(record: Record) -> tuple[str | None, int]:
    """Return the id that a scheduled message keeps, and the priority."""
    try:
        attributes = attributes_of(record.headers)
    except InvalidRequest:
        # It was published past the doors; it is delivered as if it said nothing.
        return None, PRIORITY_NORMAL
    return attributes.id, attributes.priority

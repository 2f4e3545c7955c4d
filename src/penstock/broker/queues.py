"""Receiving messages of queue groups and answering for them, on any node.

A topic's partitions are led by several nodes. A receive asks one node after the other, beginning
with another each time, and takes what the first one has that has anything. Answers go to the
partition that the receipt names. Every verb runs on the partition's leader, here or elsewhere.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.broker.arrivals import Arrivals
from penstock.broker.calls import Calls
from penstock.broker.queue_values import Message, Nack, Outcome, Reject
from penstock.cluster import (
    LEASE_MS_MAX,
    Cluster,
    ConfigureGroup,
    Delivery,
    PartitionQueue,
    Return,
    Topic,
    check_group_name,
    check_group_setting_names,
    check_group_settings,
    resolve_group_settings,
)
from penstock.delivery import GroupSettings, Part, parse_receipt, to_runs
from penstock.errors import (
    DiskFull,
    InvalidRequest,
    LeaseExpired,
    PenstockError,
    Unavailable,
)
from penstock.ids import TopicPartition

COUNT_MAX = 10_000
WAIT_MS_MAX = 60_000
DELAY_MS_MAX = LEASE_MS_MAX
REASON_BYTES_MAX = 4_096
_CONSUMER_BYTES_MAX = 249
# An answer that met a change of leaders is given again to the next one, for this long.
_ANSWER_AGAIN_S = 10.0
_AGAIN_PAUSE_S = 0.05
# A wait that found something for others only is followed by a pause.
_VAIN_PAUSE_S = 0.01
_PRIORITY_NORMAL = 4

Stale = list[tuple[int, int]]
"""Delivery and offset of receipts that do not hold."""


class _Receive(msgspec.Struct, frozen=True):
    topic: str
    group: str
    partitions: list[int]
    count_max: int
    lease_ms: int | None
    consumer: str


class _Create(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    group: str
    is_at_end: bool


class _Ack(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    group: str
    parts: list[Part]
    is_repeated: bool = False


class _Extend(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    group: str
    parts: list[Part]
    lease_ms: int


class _GiveBack(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    group: str
    items: list[Return]


class _Claim(NamedTuple):
    """One item of a request: where it stands in it, and what its receipt says."""

    number: int
    delivery: int
    offset: int


class Queues:
    """The verbs of queue groups."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        self._arrivals = Arrivals(cluster, calls)
        self._turn = 0
        self._leaders: dict[str, tuple[int, dict[int, list[int]]]] = {}
        calls.serve("queue.receive", _Receive, self._receive_here)
        calls.serve("queue.create", _Create, self._create_here)
        calls.serve("queue.ack", _Ack, self._ack_here)
        calls.serve("queue.extend", _Extend, self._extend_here)
        calls.serve("queue.nack", _GiveBack, self._nack_here)
        calls.serve("queue.reject", _GiveBack, self._reject_here)

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
    ) -> list[Message]:
        """Return messages, waiting up to `wait_ms` for the first; none is a normal answer."""
        return await self.receive_any(
            [topic],
            group,
            count_max=count_max,
            wait_ms=wait_ms,
            lease_ms=lease_ms,
            consumer=consumer,
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
    ) -> list[Message]:
        """Return messages of the first of these topics that has any."""
        _check("count_max", count_max, 1, COUNT_MAX)
        _check("wait_ms", wait_ms, 0, WAIT_MS_MAX)
        if lease_ms is not None:
            _check("lease_ms", lease_ms, 0, LEASE_MS_MAX)
        if len(consumer.encode()) > _CONSUMER_BYTES_MAX:
            raise InvalidRequest(
                f"the consumer's name has {len(consumer.encode())} bytes, at most"
                f" {_CONSUMER_BYTES_MAX} are allowed"
            )
        for topic in topics:
            await self._make_sure_of(topic, group)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        while True:
            for topic in topics:
                request = _Receive(topic, group, [], count_max, lease_ms, consumer)
                messages = await self._receive_anywhere(request)
                if messages:
                    return messages
            now_s = loop.time()
            if now_s >= until_s:
                return []
            wanted = {topic: self._by_leader(topic) for topic in topics}
            await self._arrivals.wait(wanted, group, consumer, until_s=until_s)
            if loop.time() - now_s < _VAIN_PAUSE_S / 10:
                await asyncio.sleep(_VAIN_PAUSE_S)

    async def _receive_anywhere(self, request: _Receive) -> list[Message]:
        by_leader = self._by_leader(request.topic)
        nodes = sorted(by_leader)
        self._turn += 1
        first = self._turn % len(nodes) if nodes else 0
        failure: PenstockError | None = None
        for node in (*nodes[first:], *nodes[:first]):
            partitions = by_leader[node]
            asked = msgspec.structs.replace(request, partitions=partitions)
            try:
                messages = await self._calls.ask(
                    TopicPartition(request.topic, partitions[0]),
                    "queue.receive",
                    asked,
                    list[Message],
                )
            except Unavailable as error:
                failure = error
                continue
            if messages:
                self._arrivals.found(node, request.topic, request.group)
                return messages
        if isinstance(failure, DiskFull):
            # Waiting does not help; a change of leaders passes by itself.
            raise failure
        return []

    def _by_leader(self, topic: str) -> dict[int, list[int]]:
        """Return the topic's partitions by the node that leads them."""
        version = self._cluster.version
        known = self._leaders.get(topic)
        if known is not None and known[0] == version:
            return known[1]
        by_leader: dict[int, list[int]] = {}
        for number, replicas in enumerate(self._cluster.metadata.topic(topic).replicas):
            leader = self._cluster.leaders.leader_of(replicas.group)
            if leader is not None and leader.node >= 0:
                by_leader.setdefault(leader.node, []).append(number)
        self._leaders[topic] = (version, by_leader)
        return by_leader

    async def _receive_here(self, request: _Receive) -> list[Message]:
        """Collect messages from the partitions that this node leads, beginning with any."""
        messages: list[Message] = []
        partitions = request.partitions
        self._turn += 1
        first = self._turn % len(partitions)
        failure: PenstockError | None = None
        for number in (*partitions[first:], *partitions[:first]):
            try:
                queue = self._queue(request.topic, number)
                if request.group not in queue.groups:
                    await queue.create_group(request.group, queue.start_offset)
                delivery = queue.receive_nowait(
                    request.group,
                    count_max=request.count_max - len(messages),
                    lease_ms=request.lease_ms,
                    consumer=request.consumer,
                )
            except PenstockError as error:
                # One partition that is in trouble does not keep the others from being served.
                failure = error
                continue
            if delivery is not None:
                messages += _messages(request.topic, number, delivery)
                if len(messages) >= request.count_max:
                    break
        if failure is not None and not messages:
            raise failure
        return messages

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        return self._cluster.partition(TopicPartition(topic, partition)).queue

    # Answering.

    async def ack(self, topic: str, group: str, receipts: Sequence[str]) -> list[Outcome]:
        """Settle messages for good; durable when this returns."""

        async def ask(partition: int, claims: list[_Claim]) -> Stale:
            request = _Ack(topic, partition, group, _parts(claims))
            return await self._ask_until_known(request)

        return await self._answer(topic, receipts, ask)

    async def nack(self, topic: str, group: str, items: Sequence[Nack]) -> list[Outcome]:
        """Give messages back: they rest, or go to the dead letters after too many attempts."""

        def item_of(claim: _Claim) -> Return:
            nack = items[claim.number]
            return Return(claim.delivery, claim.offset, nack.delay_ms, nack.reason)

        return await self._give_back(topic, group, items, item_of, "queue.nack")

    async def extend(
        self, topic: str, group: str, receipts: Sequence[str], *, lease_ms: int
    ) -> list[Outcome]:
        """Let leases end `lease_ms` from now; 0 gives the messages back at once."""
        _check("lease_ms", lease_ms, 0, LEASE_MS_MAX)
        if lease_ms == 0:
            return await self.nack(topic, group, [Nack(each, delay_ms=0) for each in receipts])

        async def ask(partition: int, claims: list[_Claim]) -> Stale:
            request = _Extend(topic, partition, group, _parts(claims), lease_ms)
            place = TopicPartition(topic, partition)
            return await self._calls.ask(place, "queue.extend", request, Stale)

        return await self._answer(topic, receipts, ask)

    async def reject(self, topic: str, group: str, items: Sequence[Reject]) -> list[Outcome]:
        """Send messages to the dead letters at once."""

        def item_of(claim: _Claim) -> Return:
            return Return(claim.delivery, claim.offset, None, items[claim.number].reason)

        return await self._give_back(topic, group, items, item_of, "queue.reject")

    async def _give_back(
        self,
        topic: str,
        group: str,
        items: Sequence[Nack] | Sequence[Reject],
        item_of: Callable[[_Claim], Return],
        verb: str,
    ) -> list[Outcome]:
        for each in items:
            _check_failure(each)

        async def ask(partition: int, claims: list[_Claim]) -> Stale:
            request = _GiveBack(topic, partition, group, [item_of(claim) for claim in claims])
            return await self._calls.ask(TopicPartition(topic, partition), verb, request, Stale)

        return await self._answer(topic, [each.receipt for each in items], ask)

    async def _answer(
        self,
        topic: str,
        receipts: Sequence[str],
        ask: Callable[[int, list[_Claim]], Awaitable[Stale]],
    ) -> list[Outcome]:
        """Sort receipts by partition, ask for each, and put the outcomes in order."""
        partitions = self._cluster.metadata.topic(topic).partitions
        outcomes: list[Outcome] = [None] * len(receipts)
        claims: dict[int, list[_Claim]] = {}
        for number, text in enumerate(receipts):
            try:
                partition, delivery, offset = parse_receipt(text)
            except PenstockError as error:
                outcomes[number] = error
                continue
            if partition >= partitions:
                outcomes[number] = LeaseExpired(f"receipt {text} is of no partition of {topic!r}")
                continue
            claims.setdefault(partition, []).append(_Claim(number, delivery, offset))

        async def settle(partition: int) -> None:
            try:
                stale = await ask(partition, claims[partition])
            except PenstockError as error:
                for claim in claims[partition]:
                    outcomes[claim.number] = error
                return
            if stale:
                _note_stale(receipts, claims[partition], stale, outcomes)

        if len(claims) == 1:
            await settle(next(iter(claims)))
        else:
            await asyncio.gather(*map(settle, claims))
        return outcomes

    async def _ask_until_known(self, request: _Ack) -> Stale:
        """Ack, and again with the next leader when this one cannot tell the outcome."""
        place = TopicPartition(request.topic, request.partition)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _ANSWER_AGAIN_S
        while True:
            try:
                return await self._calls.ask(place, "queue.ack", request, Stale)
            except DiskFull:
                raise
            except Unavailable:
                if loop.time() >= until_s:
                    raise
            request = msgspec.structs.replace(request, is_repeated=True)
            await asyncio.sleep(_AGAIN_PAUSE_S)

    async def _ack_here(self, request: _Ack) -> Stale:
        queue = self._queue(request.topic, request.partition)
        return await queue.ack(request.group, request.parts, is_repeated=request.is_repeated)

    async def _extend_here(self, request: _Extend) -> Stale:
        queue = self._queue(request.topic, request.partition)
        return await queue.extend(request.group, request.parts, lease_ms=request.lease_ms)

    async def _nack_here(self, request: _GiveBack) -> Stale:
        queue = self._queue(request.topic, request.partition)
        return await queue.nack(request.group, request.items)

    async def _reject_here(self, request: _GiveBack) -> Stale:
        queue = self._queue(request.topic, request.partition)
        return await queue.reject(request.group, request.items)

    # Groups.

    async def groups(self, topic: str) -> list[str]:
        """Return the names of a topic's queue groups."""
        return sorted(self._cluster.metadata.topic(topic).groups)

    def settings_of(self, topic: str, group: str) -> GroupSettings:
        """Return the settings that a group has, or would have."""
        return self._cluster.replicas.group_settings(topic, group)

    async def create_group(
        self, topic: str, group: str, changed: Mapping[str, str] | None = None
    ) -> GroupSettings:
        """Let a topic have a queue group; one that exists is left where it is."""
        return await self.configure_group(topic, group, changed or {})

    async def configure_group(
        self, topic: str, group: str, changed: Mapping[str, str], removed: Sequence[str] = ()
    ) -> GroupSettings:
        """Change settings of a group, creating it where it does not exist."""
        check_group_name(group)
        check_group_settings(changed)
        check_group_setting_names(removed)
        found = self._cluster.metadata.topic(topic)
        if group not in found.groups:
            await self._begin_group(found, group, changed)
        command = ConfigureGroup(found.topic_id, group, dict(changed), list(removed))
        await self._cluster.change(command)
        return self.settings_of(topic, group)

    async def _make_sure_of(self, topic: str, group: str) -> None:
        if group not in self._cluster.metadata.topic(topic).groups:
            await self.create_group(topic, group)

    async def _begin_group(self, topic: Topic, group: str, changed: Mapping[str, str]) -> None:
        """Let a group that begins at the end begin there in all partitions.

        One that begins at the start does so in each partition when it first receives from it, and
        so do partitions that the topic gets later.
        """
        settings = resolve_group_settings(topic.name, topic.settings, changed)
        if settings.start != "latest":
            return
        requests = [
            _Create(topic.name, number, group, is_at_end=True) for number in range(topic.partitions)
        ]
        await asyncio.gather(
            *(
                self._calls.ask(
                    TopicPartition(topic.name, request.partition), "queue.create", request, bool
                )
                for request in requests
            )
        )

    async def _create_here(self, request: _Create) -> bool:
        queue = self._queue(request.topic, request.partition)
        queue.log.check_serving()
        floor = queue.log.high_watermark if request.is_at_end else queue.start_offset
        await queue.create_group(request.group, floor)
        return True


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidRequest(f"{name} is {value}, not between {low} and {high}")


def _check_failure(item: Nack | Reject) -> None:
    if len(item.reason.encode()) > REASON_BYTES_MAX:
        raise InvalidRequest(
            f"a reason has {len(item.reason.encode())} bytes, at most {REASON_BYTES_MAX} are"
            " allowed"
        )
    if isinstance(item, Nack) and item.delay_ms is not None:
        _check("delay_ms", item.delay_ms, 0, DELAY_MS_MAX)


def _parts(claims: Sequence[_Claim]) -> list[Part]:
    """Join claims on the same delivery; one that is made twice counts once."""
    by_delivery: dict[int, list[int]] = {}
    for _, delivery, offset in claims:
        by_delivery.setdefault(delivery, []).append(offset)
    return [
        Part(delivery, to_runs(sorted(set(offsets)))) for delivery, offsets in by_delivery.items()
    ]


def _note_stale(
    receipts: Sequence[str], claims: Sequence[_Claim], stale: Stale, outcomes: list[Outcome]
) -> None:
    refused = {tuple(each) for each in stale}
    for number, delivery, offset in claims:
        if (delivery, offset) in refused:
            outcomes[number] = LeaseExpired(
                f"receipt {receipts[number]} does not hold any more: the lease has ended"
            )


def _messages(topic: str, partition: int, delivery: Delivery) -> list[Message]:
    at_ms, until_ms = delivery.at_ms, delivery.until_ms
    prefix = f"{partition:x}.{delivery.number:x}."
    return [
        Message(
            topic,
            partition,
            record.offset,
            f"{partition}-{record.offset}",
            f"{prefix}{record.offset:x}",
            attempt,
            at_ms,
            until_ms,
            record.timestamp,
            _PRIORITY_NORMAL,
            record.key,
            record.value,
            record.headers,
        )
        for record, attempt in delivery.messages
    ]

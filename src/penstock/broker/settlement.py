"""What consumers answer for the messages that they received: ack, nack, extend, reject.

A receipt names the partition, so answers are sorted by it and each partition's leader gets one
request. Whether a receipt holds is decided there, in the order of the log.

An answer may be given again without harm, and a consumer that does not know what became of its own
can do nothing better. So the node that was asked does it: it gives one that met the end of a leader
to the next one, and only when none can be found for long is the outcome left open. An ack that was
committed the first time counts; of anything else that was, the consumer hears that its lease has
ended, which is so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec

from penstock.broker.calls import Calls
from penstock.broker.queue_values import Nack, Outcome, Reject, TopicReceipt, check_number
from penstock.cluster import LEASE_MS_MAX, Cluster, PartitionQueue, Return
from penstock.delivery import Part, Receipt, Run, parse_receipt, to_runs
from penstock.errors import (
    DiskFull,
    InvalidReceipt,
    InvalidRequest,
    LeaseExpired,
    PenstockError,
    Unavailable,
)
from penstock.ids import TopicPartition

DELAY_MS_MAX = 7 * 24 * 3600 * 1000
REASON_BYTES_MAX = 4_096
# What met a change of leaders is given again to the next one, for this long.
_AGAIN_S = 15.0
# A leader that hangs without breaking its links is replaced by then.
_ANSWER_S = 3.0
# A node that has just started learns of the topics within this time.
_TOPIC_WAIT_S = 10.0
_AGAIN_PAUSE_S = 0.05
# Offsets below need no further check.
_OFFSET_MAX = 2**60
_OFFSET_DIGITS = 15
_TEXT_MAX = 60

Stale = list[tuple[int, int]]
"""Delivery and offset of receipts that do not hold."""
_Outcomes = Coroutine[Any, Any, list[Outcome]]
Claims = dict[int, dict[int, list[tuple[int, int]]]]
"""Receipts of a request by partition and delivery: each one's offset and place in the request."""


class _Ack(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    group: str
    parts: list[Part]
    is_repeated: bool = False
    is_late: bool = False
    """Whether messages may be settled whose lease has ended, unless others have got them."""


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


class Settlement:
    """The verbs that take a receipt."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        calls.serve("queue.ack", _Ack, self._ack_here)
        calls.serve("queue.extend", _Extend, self._extend_here)
        calls.serve("queue.nack", _GiveBack, self._nack_here)
        calls.serve("queue.reject", _GiveBack, self._reject_here)

    def ack(self, topic: str, group: str, receipts: Sequence[str]) -> _Outcomes:
        """Settle messages for good; durable when this returns."""
        first = _first_of_row(receipts)
        if first is None:
            return self._ack_each(topic, group, receipts)
        return self._ack_row(topic, group, first, receipts)

    async def _ack_each(self, topic: str, group: str, receipts: Sequence[str]) -> list[Outcome]:
        async def ask(partition: int, claims: Claims) -> Stale:
            return await self._ask_until_known(
                "queue.ack", _Ack(topic, partition, group, _parts(claims[partition]))
            )

        return await self._answer(topic, receipts, ask)

    async def ack_late(self, topic: str, group: str, receipts: Sequence[str]) -> list[Outcome]:
        """The same, also for messages whose lease has ended and that nobody has got since."""

        async def ask(partition: int, claims: Claims) -> Stale:
            parts = _parts(claims[partition])
            return await self._ask_until_known(
                "queue.ack", _Ack(topic, partition, group, parts, is_late=True)
            )

        return await self._answer(topic, receipts, ask)

    async def ack_any(self, group: str, receipts: Sequence[TopicReceipt]) -> list[Outcome]:
        """The same for messages of several topics; a topic that is in trouble fails alone."""
        outcomes: list[Outcome] = [None] * len(receipts)
        numbers: dict[str, list[int]] = {}
        for number, each in enumerate(receipts):
            numbers.setdefault(each.topic, []).append(number)

        async def settle(topic: str, own: list[int]) -> None:
            try:
                found = await self.ack(topic, group, [receipts[number].receipt for number in own])
            except PenstockError as error:
                found = [error] * len(own)
            for number, outcome in zip(own, found, strict=True):
                outcomes[number] = outcome

        await asyncio.gather(*(settle(topic, own) for topic, own in numbers.items()))
        return outcomes

    async def _ack_row(
        self, topic: str, group: str, first: Receipt, receipts: Sequence[str]
    ) -> list[Outcome]:
        """Ack messages of one delivery that follow each other."""
        partition, delivery, start = first
        known = self._cluster.metadata.topics.get(topic)
        if partition >= (known.partitions if known else await self._partitions_of(topic)):
            return await self._ack_each(topic, group, receipts)
        count = len(receipts)
        part = Part(delivery, [(start, start + count)])
        try:
            request = _Ack(topic, partition, group, [part])
            stale = await self._ask_until_known("queue.ack", request)
        except PenstockError as error:
            return [error] * count
        outcomes: list[Outcome] = [None] * count
        if stale:
            claims = {delivery: [(start + number, number) for number in range(count)]}
            _note_stale(claims, stale, outcomes)
        return outcomes

    async def nack(self, topic: str, group: str, items: Sequence[Nack]) -> list[Outcome]:
        """Give messages back: they rest, or go to the dead letters after too many attempts."""

        def item_of(number: int, delivery: int, offset: int) -> Return:
            nack = items[number]
            return Return(delivery, offset, nack.delay_ms, nack.reason, nack.is_counted)

        return await self._give_back(topic, group, items, item_of, "queue.nack")

    async def extend(
        self, topic: str, group: str, receipts: Sequence[str], *, lease_ms: int
    ) -> list[Outcome]:
        """Let leases end `lease_ms` from now; 0 gives the messages back at once."""
        check_number("lease_ms", lease_ms, 0, LEASE_MS_MAX)
        if lease_ms == 0:
            return await self.nack(topic, group, [Nack(each, delay_ms=0) for each in receipts])

        async def ask(partition: int, claims: Claims) -> Stale:
            request = _Extend(topic, partition, group, _parts(claims[partition]), lease_ms)
            return await self._ask_until_known("queue.extend", request)

        return await self._answer(topic, receipts, ask)

    async def reject(self, topic: str, group: str, items: Sequence[Reject]) -> list[Outcome]:
        """Send messages to the dead letters at once."""

        def item_of(number: int, delivery: int, offset: int) -> Return:
            return Return(delivery, offset, None, items[number].reason)

        return await self._give_back(topic, group, items, item_of, "queue.reject")

    async def _give_back(
        self,
        topic: str,
        group: str,
        items: Sequence[Nack] | Sequence[Reject],
        item_of: Callable[[int, int, int], Return],
        verb: str,
    ) -> list[Outcome]:
        for each in items:
            _check_failure(each)

        async def ask(partition: int, claims: Claims) -> Stale:
            returns = [
                item_of(number, delivery, offset)
                for delivery, claimed in claims[partition].items()
                for offset, number in dict(claimed).items()
            ]
            return await self._ask_until_known(verb, _GiveBack(topic, partition, group, returns))

        return await self._answer(topic, [each.receipt for each in items], ask)

    async def _answer(
        self,
        topic: str,
        receipts: Sequence[str],
        ask: Callable[[int, Claims], Awaitable[Stale]],
    ) -> list[Outcome]:
        """Sort receipts by partition, ask for each, and put the outcomes in order."""
        partitions = await self._partitions_of(topic)
        outcomes: list[Outcome] = [None] * len(receipts)
        claims = _sorted(receipts, partitions, outcomes)

        async def settle(partition: int) -> None:
            try:
                stale = await ask(partition, claims)
            except PenstockError as error:
                for claimed in claims[partition].values():
                    for _, number in claimed:
                        outcomes[number] = error
                return
            if stale:
                _note_stale(claims[partition], stale, outcomes)

        if len(claims) == 1:
            await settle(next(iter(claims)))
        else:
            await asyncio.gather(*map(settle, claims))
        return outcomes

    async def _ask_until_known(self, verb: str, request: _Ack | _Extend | _GiveBack) -> Stale:
        """Ask, and again the next leader when this one cannot tell the outcome."""
        place = TopicPartition(request.topic, request.partition)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _AGAIN_S
        while True:
            try:
                return await self._calls.ask(place, verb, request, Stale, answer_s=_ANSWER_S)
            except DiskFull:
                raise
            except Unavailable:
                if loop.time() >= until_s:
                    raise
            if isinstance(request, _Ack):
                request = msgspec.structs.replace(request, is_repeated=True)
            await asyncio.sleep(_AGAIN_PAUSE_S)

    async def _partitions_of(self, topic: str) -> int:
        """Return how many partitions a topic has, as soon as this node can know."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _TOPIC_WAIT_S
        while True:
            try:
                return self._cluster.metadata.topic(topic).partitions
            except Unavailable:
                if loop.time() >= until_s:
                    raise
            await asyncio.sleep(_AGAIN_PAUSE_S)

    # On the leader.

    def _queue(self, request: _Ack | _Extend | _GiveBack) -> PartitionQueue:
        return self._cluster.partition(TopicPartition(request.topic, request.partition)).queue

    def _ack_here(self, request: _Ack) -> Awaitable[Stale]:
        queue = self._queue(request)
        ack = queue.ack_late if request.is_late else queue.ack
        return ack(request.group, request.parts, is_repeated=request.is_repeated)

    async def _extend_here(self, request: _Extend) -> Stale:
        queue = self._queue(request)
        return await queue.extend(request.group, request.parts, lease_ms=request.lease_ms)

    async def _nack_here(self, request: _GiveBack) -> Stale:
        return await self._queue(request).nack(request.group, request.items)

    async def _reject_here(self, request: _GiveBack) -> Stale:
        return await self._queue(request).reject(request.group, request.items)


def _check_failure(item: Nack | Reject) -> None:
    if len(item.reason.encode()) > REASON_BYTES_MAX:
        raise InvalidRequest(
            f"a reason has {len(item.reason.encode())} bytes, at most {REASON_BYTES_MAX} are"
            " allowed"
        )
    if isinstance(item, Nack) and item.delay_ms is not None:
        check_number("delay_ms", item.delay_ms, 0, DELAY_MS_MAX)


def _first_of_row(receipts: Sequence[str]) -> Receipt | None:
    """Read the first receipt when the others are of the messages after it, in the same delivery.

    Those of one receive mostly are. None says that they are not, or that one of them is none: each
    is looked at then.
    """
    if not receipts:
        return None
    try:
        first = parse_receipt(receipts[0])
    except InvalidReceipt:
        return None
    partition, delivery, start = first
    if start >= _OFFSET_MAX:
        return None
    # To write the others down, all at once, is cheaper than to read them.
    count = len(receipts)
    row = f"{partition:x}.{delivery:x}.%x " * count % tuple(range(start, start + count))
    return first if receipts == row.split() else None


def _runs_of(offsets: list[int]) -> list[Run]:
    """Join offsets; one that comes twice counts once."""
    first, count = offsets[0], len(offsets)
    if offsets[-1] - first == count - 1 and offsets == list(range(first, first + count)):
        return [(first, first + count)]
    return to_runs(sorted(set(offsets)))


def _sorted(receipts: Sequence[str], partitions: int, outcomes: list[Outcome]) -> Claims:
    """Read receipts; `outcomes` gets the errors of those that are none.

    Messages that went out together have receipts that differ in the offset alone, so the rest is
    read once.
    """
    claims: Claims = {}
    known: dict[str, list[tuple[int, int]]] = {}
    for number, text in enumerate(receipts):
        delivery_text, _, offset_text = text.rpartition(".")
        claimed = known.get(delivery_text)
        try:
            if claimed is not None and 0 < len(offset_text) <= _OFFSET_DIGITS:
                claimed.append((int(offset_text, 16), number))
                continue
            partition, delivery, offset = parse_receipt(text)
        except PenstockError as error:
            outcomes[number] = error
        except ValueError:
            outcomes[number] = InvalidReceipt(f"{text[:_TEXT_MAX]!r} is not a receipt")
        else:
            if partition >= partitions:
                outcomes[number] = LeaseExpired(f"receipt {text} is of no partition of this topic")
                continue
            claimed = claims.setdefault(partition, {}).setdefault(delivery, [])
            claimed.append((offset, number))
            known[delivery_text] = claimed
    return claims


def _parts(claims: dict[int, list[tuple[int, int]]]) -> list[Part]:
    """Join claims on the same delivery; one that is made twice counts once."""
    return [
        Part(delivery, _runs_of([offset for offset, _ in claimed]))
        for delivery, claimed in claims.items()
    ]


def _note_stale(
    claims: dict[int, list[tuple[int, int]]], stale: Stale, outcomes: list[Outcome]
) -> None:
    refused = {tuple(each) for each in stale}
    for delivery, claimed in claims.items():
        for offset, number in claimed:
            if (delivery, offset) in refused:
                outcomes[number] = LeaseExpired(
                    f"the lease of offset {offset} has ended; its receipt holds no more"
                )

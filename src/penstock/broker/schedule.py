"""Messages that wait for their time: seen, cancelled, moved and released, on any node.

Each verb is carried out by the leader of the message's partition. Outcomes are given per message,
in the order of the ids: None where it is done, an error where it is not.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec

from penstock.broker.calls import Calls
from penstock.clock import Clock
from penstock.cluster import Cluster, ScheduledRecord
from penstock.delivery import parse_stage_id, stage_id
from penstock.errors import InvalidRequest, MessageNotFound, PenstockError
from penstock.ids import TopicPartition
from penstock.record import TIME_MS_MAX, attributes_of

COUNT_MAX = 1_000
# Larger than any number of a message.
_NUMBER_END = 2**63


class Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    """A message that waits; `published_ms` is the time that its publisher gave it."""

    id: str
    partition: int
    due_ms: int
    published_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def cursor(self) -> str:
        """Where a list that ends with this message is to be continued."""
        return f"{self.due_ms}~{self.id}"


# The verb `list` hides the type of that name inside its class.
Page = list[Scheduled]
Outcomes = list[PenstockError | None]
_Fates = list[Literal["changed", "missing", "expired"]]
_Items = list[tuple[int, int]]


class _List(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    after: tuple[int, int]
    count_max: int


class _Change(msgspec.Struct, frozen=True):
    """Messages to be cancelled; or moved, when there is a time."""

    topic: str
    partition: int
    numbers: list[int]
    due_ms: int | None


class _Find(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    number: int


class _All(msgspec.Struct, frozen=True):
    """All messages of a partition, to be counted or cancelled."""

    topic: str
    partition: int


class Schedule:
    """The verbs that concern scheduled messages."""

    def __init__(self, cluster: Cluster, calls: Calls, clock: Clock) -> None:
        self._cluster = cluster
        self._calls = calls
        self._clock = clock
        calls.serve("schedule.list", _List, self._list_here)
        calls.serve("schedule.find", _Find, self._find_here)
        calls.serve("schedule.change", _Change, self._change_here)
        calls.serve("schedule.count", _All, self._count_here)
        calls.serve("schedule.clear", _All, self._clear_here)

    async def list(self, topic: str, *, count_max: int = 100, after: str = "") -> Page:
        """Return messages of a topic in the order of their time, after a `cursor`."""
        if not 1 <= count_max <= COUNT_MAX:
            raise InvalidRequest(f"{count_max} messages were asked for, not 1 to {COUNT_MAX}")
        due_ms, partition, number = _read_cursor(after) if after else (-1, -1, -1)
        asked = []
        for place in self._places(topic):
            if place.partition == partition:
                last = number
            else:
                last = _NUMBER_END - 1 if place.partition < partition else -1
            request = _List(topic, place.partition, (due_ms, last), count_max)
            asked.append(self._calls.ask(place, "schedule.list", request, Page))
        found = [each for part in await asyncio.gather(*asked) for each in part]
        return sorted(found, key=_by_time)[:count_max]

    async def _list_here(self, request: _List) -> Page:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        page = await partition.stage.page(after=request.after, count_max=request.count_max)
        return [_scheduled(request.partition, each) for each in page]

    async def find(self, topic: str, message_id: str) -> Scheduled | None:
        """Return one message that waits; None when it does not, or no longer."""
        partition, number = parse_stage_id(message_id)
        if partition >= self._cluster.metadata.topic(topic).partitions:
            return None
        request = _Find(topic, partition, number)
        place = TopicPartition(topic, partition)
        found = await self._calls.ask(place, "schedule.find", request, Page)
        return found[0] if found else None

    async def _find_here(self, request: _Find) -> Page:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        found = await partition.stage.find([request.number])
        return [_scheduled(request.partition, each) for each in found]

    async def cancel(self, topic: str, ids: Sequence[str]) -> Outcomes:
        """Take messages out of the stage for good."""
        return await self._change(topic, ids, None)

    async def move(self, topic: str, ids: Sequence[str], deliver_at_ms: int) -> Outcomes:
        """Give messages another time; one that has passed releases them.

        A message that does not live until then stays as it is: it would be dropped without a word.
        """
        if not 0 <= deliver_at_ms <= TIME_MS_MAX:
            raise InvalidRequest(f"deliver-at is {deliver_at_ms}, not 0 to {TIME_MS_MAX}")
        return await self._change(topic, ids, deliver_at_ms)

    async def release(self, topic: str, ids: Sequence[str]) -> Outcomes:
        """Let messages be delivered at once."""
        return await self._change(topic, ids, self._clock.now_ms())

    async def _change(self, topic: str, ids: Sequence[str], due_ms: int | None) -> Outcomes:
        places = {place.partition: place for place in self._places(topic)}
        outcomes: Outcomes = [
            MessageNotFound(f"message {text[:80]!r} of {topic} does not wait for its time")
            for text in ids
        ]
        wanted: dict[int, _Items] = {}
        for item, text in enumerate(ids):
            try:
                partition, number = parse_stage_id(text)
            except PenstockError as error:
                outcomes[item] = error
            else:
                wanted.setdefault(partition, []).append((item, number))
        await asyncio.gather(
            *(
                self._change_in(places[partition], items, due_ms, outcomes)
                for partition, items in wanted.items()
                if partition in places
            )
        )
        return outcomes

    async def _change_in(
        self,
        place: TopicPartition,
        items: _Items,
        due_ms: int | None,
        outcomes: Outcomes,
    ) -> None:
        """Change messages of one partition; those that are found lose their error."""
        request = _Change(place.topic, place.partition, [each for _, each in items], due_ms)
        try:
            fates = await self._calls.ask(place, "schedule.change", request, _Fates)
        except PenstockError as error:
            for item, _ in items:
                outcomes[item] = error
            return
        for (item, number), fate in zip(items, fates, strict=True):
            if fate == "expired":
                outcomes[item] = InvalidRequest(
                    f"the time to live of message {stage_id(place.partition, number)!r} of"
                    f" {place.topic} is over at {due_ms}, so that nobody would receive it then"
                )
            elif fate == "changed":
                outcomes[item] = None

    async def _change_here(self, request: _Change) -> _Fates:
        stage = self._cluster.partition(TopicPartition(request.topic, request.partition)).stage
        due_ms, expired = request.due_ms, set[int]()
        if due_ms is None:
            changed = await stage.cancel(request.numbers)
        else:
            found = await stage.find(request.numbers)
            expired = {each.waiting.number for each in found if _is_expired(each, due_ms)}
            kept = [number for number in request.numbers if number not in expired]
            moved = dict(zip(kept, await stage.move(kept, due_ms=due_ms), strict=True))
            changed = [moved.get(number, False) for number in request.numbers]
        return [
            "expired" if number in expired else "changed" if was_waiting else "missing"
            for number, was_waiting in zip(request.numbers, changed, strict=True)
        ]

    async def count(self, topic: str) -> int:
        """Return how many messages of a topic wait."""
        return await self._sum(topic, "schedule.count")

    async def _count_here(self, request: _All) -> int:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        partition.check_serving()
        return partition.stage.count

    async def clear(self, topic: str) -> int:
        """Cancel all messages of a topic that wait by now; return how many there were."""
        return await self._sum(topic, "schedule.clear")

    async def _clear_here(self, request: _All) -> int:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        return await partition.stage.clear()

    async def _sum(self, topic: str, verb: str) -> int:
        counts = await asyncio.gather(
            *(
                self._calls.ask(place, verb, _All(topic, place.partition), int)
                for place in self._places(topic)
            )
        )
        return sum(counts)

    def _places(self, topic: str) -> Sequence[TopicPartition]:
        partitions = self._cluster.metadata.topic(topic).partitions
        return [TopicPartition(topic, number) for number in range(partitions)]


def _read_cursor(text: str) -> tuple[int, int, int]:
    due, _, rest = text.partition("~")
    if not (due.isascii() and due.isdigit() and len(due) < 16):
        raise InvalidRequest(f"{text[:80]!r} is not where a list of scheduled messages ended")
    return int(due), *parse_stage_id(rest)


def _by_time(scheduled: Scheduled) -> tuple[int, int, int]:
    return scheduled.due_ms, *parse_stage_id(scheduled.id)


def _is_expired(found: ScheduledRecord, now_ms: int) -> bool:
    """Whether the time that a message was given to live is over at a time."""
    expires_at_ms = attributes_of(found.record.headers).expires_at_ms
    return expires_at_ms is not None and expires_at_ms <= now_ms


def _scheduled(partition: int, found: ScheduledRecord) -> Scheduled:
    return Scheduled(
        id=stage_id(partition, found.waiting.number),
        partition=partition,
        due_ms=found.waiting.due_ms,
        published_ms=found.record.timestamp,
        key=found.record.key,
        value=found.record.value,
        headers=found.record.headers,
    )

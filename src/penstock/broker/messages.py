"""Messages one by one, for the doors whose callers do not speak in batches.

Messages are put into the same record batches that Kafka's producers send, each for the partition
that its key asks for, and published by the partition's leader, whichever node was asked. A message
that cannot be taken fails alone.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from penstock.broker.bundles import Bundles
from penstock.broker.calls import Calls
from penstock.broker.publish import Publisher, check_time
from penstock.broker.spread import RUN_MAX, Spread
from penstock.broker.stored import end_offset, stored_records
from penstock.broker.topics import Topics
from penstock.clock import Clock
from penstock.cluster import Cluster, Placement, Topic, TopicSettings
from penstock.delivery import stage_id
from penstock.errors import (
    BatchTooLarge,
    InvalidBatch,
    InvalidRequest,
    InvalidTimestamp,
    NotLeader,
    PenstockError,
    TopicNotFound,
)
from penstock.ids import TopicPartition
from penstock.record import (
    DELIVER_AT,
    EXPIRES_AT,
    HEADER_BYTES,
    IDEMPOTENCY_KEY,
    PRIORITY,
    PRIORITY_MAX,
    PRIORITY_NORMAL,
    TIME_MS_MAX,
    Record,
    attributes_of,
    encode_batch,
    encode_values,
    partition_of_idempotency_key,
    partition_of_key,
)

Acks = Literal["none", "leader", "all"]

# A batch is written, sent and read whole, so large publishes are cut into several.
_BATCH_BYTES_MAX = 1024 * 1024
_BATCH_RECORDS_MAX = 10_000
# Above what lengths, deltas and the count of headers take in a record's own bytes.
_RECORD_OVERHEAD_BYTES = 40
_HEADER_OVERHEAD_BYTES = 10
_ELECTION_WAIT_S = 3.0
_LOOK_AGAIN_S = 0.02


class NewMessage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message to be published; `value` may be null, as a tombstone's is."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None
    priority: int = PRIORITY_NORMAL
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    idempotency_key: str | None = None


class Published(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where a message went; a scheduled one has no offset before its time."""

    id: str
    partition: int
    offset: int | None
    timestamp: int
    is_duplicate: bool = False
    deliver_at_ms: int | None = None


class PublishedRun(msgspec.Struct, frozen=True):
    """Where messages went that were published together, or why they did not.

    Their offsets follow each other; without one nobody waits for them.
    """

    count: int
    partition: int
    offset: int | None = None
    timestamp: int = 0
    error: PenstockError | None = None


class _Publish(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    batch: bytearray
    acks: Acks
    era: int = 0
    """That of the topic for which the partition was chosen."""


class _Placed(msgspec.Struct, frozen=True):
    """The first offset of a batch, or None when nobody waits for it; or where each message went."""

    offset: int | None
    append_time_ms: int
    messages: list[Placement] | None = None


class _Read(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    count_max: int
    bytes_max: int


class _FindOffset(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    time_ms: int


class _Bounds(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class _Item(NamedTuple):
    """A message on its way: its place in the request, and what its record will hold."""

    number: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    size_bytes: int
    era: int


class Messages:
    """Publishes and reads single messages of any partition, on any node."""

    def __init__(
        self, cluster: Cluster, calls: Calls, publisher: Publisher, topics: Topics, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._calls = calls
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._spread = Spread(self._is_led)
        self._bundles = Bundles(self._publish_bundle)
        calls.serve("messages.publish", _Publish, self._publish_here)
        calls.serve("messages.read", _Read, self._read_here)
        calls.serve("messages.find_offset", _FindOffset, self._find_offset_here)
        calls.serve("messages.bounds", _Bounds, self._bounds_here)

    async def publish(
        self, topic: str, messages: Sequence[NewMessage], *, acks: Acks = "all"
    ) -> list[Published | PenstockError]:
        """Publish messages; the results are in their order, an error where one failed alone.

        Raises when the topic as a whole cannot be used.
        """
        found = await self._topics.find_or_create(topic)
        settings = self._cluster.settings(topic)
        results: list[Published | PenstockError | None] = [None] * len(messages)
        by_partition: dict[int, list[_Item]] = {}
        now_ms = self._clock.now_ms()
        if len(messages) == 1 and acks == "all":
            return [await self._publish_one(found, messages[0], settings, now_ms)]
        spares = self._spread.partitions(
            topic, among=found.partitions, count=sum(map(_goes_anywhere, messages))
        )
        for number, message in enumerate(messages):
            try:
                item = _checked(number, message, settings, now_ms, era=found.era)
                partition = _partition_of(message, found, spares)
            except PenstockError as error:
                results[number] = error
            else:
                by_partition.setdefault(partition, []).append(item)
        batches = [
            self._publish_batch(TopicPartition(topic, partition), items, acks, results)
            for partition, all_items in by_partition.items()
            for items in _batches(all_items, settings.batch_bytes_max)
        ]
        if len(batches) == 1:
            # A task for one batch would cost as much as the batch.
            await batches[0]
        else:
            await asyncio.gather(*batches)
        return [result for result in results if result is not None]

    async def _publish_one(
        self, topic: Topic, message: NewMessage, settings: TopicSettings, now_ms: int
    ) -> Published | PenstockError:
        """Publish a message that comes alone, together with others that do."""
        spares = self._spread.partitions(topic.name, among=topic.partitions, count=1)
        try:
            item = _checked(0, message, settings, now_ms, era=topic.era)
            place = TopicPartition(topic.name, _partition_of(message, topic, spares))
            if item.headers:
                # It may wait for what others have published, which those beside it must not.
                (where,) = await self._publish_bundle(place, [item])
            else:
                bytes_max = min(settings.batch_bytes_max, _BATCH_BYTES_MAX) - HEADER_BYTES
                where = await self._bundles.add(place, item, bytes_max=bytes_max)
        except PenstockError as error:
            return error
        return _published(place.partition, where)

    def _is_led(self, topic: str, partition: int) -> bool:
        """Whether a partition has a leader, as far as this node has heard."""
        group = self._cluster.metadata.topic(topic).replicas[partition].group
        leader = self._cluster.leaders.leader_of(group)
        return leader is not None and leader.node >= 0

    async def publish_values(
        self, topic: str, values: Sequence[bytes], *, acks: Acks = "all"
    ) -> list[PublishedRun] | None:
        """Publish messages that are a value and nothing else, with little work for each.

        None says that `publish` must look at each of them: one may be refused, or they do not fit
        one batch.
        """
        found = await self._topics.find_or_create(topic)
        settings = self._cluster.settings(topic)
        size_bytes = sum(map(len, values)) + len(values) * _RECORD_OVERHEAD_BYTES + HEADER_BYTES
        if settings.log.compacts or size_bytes > min(settings.batch_bytes_max, _BATCH_BYTES_MAX):
            return None
        if len(values) <= RUN_MAX:
            return [await self._publish_run(found, values, acks)]
        starts = range(0, len(values), RUN_MAX)
        runs = [values[start : start + RUN_MAX] for start in starts]
        return await asyncio.gather(*(self._publish_run(found, run, acks) for run in runs))

    async def _publish_run(self, topic: Topic, values: Sequence[bytes], acks: Acks) -> PublishedRun:
        partition = self._spread.take(topic.name, among=topic.partitions, run=len(values))
        now_ms = self._clock.now_ms()
        place = TopicPartition(topic.name, partition)
        request = _Publish(topic.name, partition, encode_values(values, now_ms), acks, topic.era)
        try:
            placed = await self._calls.ask(place, "messages.publish", request, _Placed)
        except PenstockError as error:
            return PublishedRun(len(values), partition, error=error)
        assert placed.messages is None, "a batch without headers is appended as it is"
        timestamp = now_ms if placed.append_time_ms < 0 else placed.append_time_ms
        return PublishedRun(len(values), partition, placed.offset, timestamp)

    async def _publish_batch(
        self,
        place: TopicPartition,
        items: Sequence[_Item],
        acks: Acks,
        results: list[Published | PenstockError | None],
    ) -> None:
        """Publish items as one batch and put what became of each into `results`."""
        try:
            placements = await self._publish_bundle(place, items, acks)
        except PenstockError as error:
            for item in items:
                results[item.number] = error
            return
        for item, where in zip(items, placements, strict=True):
            results[item.number] = _published(place.partition, where)

    async def _publish_bundle(
        self, place: TopicPartition, items: Sequence[_Item], acks: Acks = "all"
    ) -> Sequence[Placement]:
        """Publish items as one batch; return where each of them went."""
        era = min(item.era for item in items)
        request = _Publish(place.topic, place.partition, _encoded(items), acks, era)
        placed = await self._calls.ask(place, "messages.publish", request, _Placed)
        if placed.messages is not None:
            return placed.messages
        first, append_time_ms = placed.offset, placed.append_time_ms
        return [
            Placement(
                None if first is None else first + delta,
                None,
                item.timestamp if append_time_ms < 0 else append_time_ms,
            )
            for delta, item in enumerate(items)
        ]

    async def _publish_here(self, request: _Publish) -> _Placed:
        place = TopicPartition(request.topic, request.partition)
        if self._cluster.metadata.topic(request.topic).era != request.era:
            # Its key may belong elsewhere.
            raise NotLeader(f"{place} was chosen among other partitions than there are now")
        publication = self._publisher.publish(
            place, memoryview(request.batch), waits_for_commit=request.acks == "all"
        )
        if request.acks == "none":
            publication.offset.add_done_callback(asyncio.Future.exception)
            return _Placed(None, publication.append_time_ms)
        if publication.placed is not None:
            # Answered by `placed`, which has the same failure.
            publication.offset.add_done_callback(asyncio.Future.exception)
            placed = await publication.placed
            return _Placed(placed.offset, publication.append_time_ms, placed.messages)
        return _Placed(await publication.offset, publication.append_time_ms)

    async def read(
        self, place: TopicPartition, *, offset: int, count_max: int, bytes_max: int
    ) -> list[Record]:
        """Return committed records from `offset` on; none is a normal answer.

        At least one record is returned where there is one, whatever its size.
        """
        if count_max < 1:
            raise InvalidRequest(f"{count_max} records were asked for, which is less than one")
        request = _Read(place.topic, place.partition, offset, count_max, bytes_max)
        return await self._calls.ask(place, "messages.read", request, list[Record])

    async def _read_here(self, request: _Read) -> list[Record]:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        offset = request.offset
        while True:
            found = partition.read(offset, bytes_max=request.bytes_max)
            if found is None:
                return []
            data = found.read()
            records = itertools.islice(
                stored_records(partition, data, offset=offset), request.count_max
            )
            if result := list(records):
                return result
            # Compaction or the broker's own records left nothing to see in these batches.
            offset = end_offset(data)

    async def find_offset(self, place: TopicPartition, *, time_ms: int) -> int:
        """Return the offset of the first record at or after a time; the end when there is none."""
        request = _FindOffset(place.topic, place.partition, time_ms)
        return await self._calls.ask(place, "messages.find_offset", request, int)

    async def _find_offset_here(self, request: _FindOffset) -> int:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        found = partition.find_time(request.time_ms)
        return partition.high_watermark if found is None else found.offset

    async def bounds(self, place: TopicPartition) -> tuple[int, int]:
        """Return the first offset that can be read and the one after the last.

        A leader that was just elected is asked again: a topic is often looked at when it has just
        been created, and its creation must not look as if it had failed.
        """
        request = _Bounds(place.topic, place.partition)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _ELECTION_WAIT_S
        while True:
            try:
                return await self._calls.ask(place, "messages.bounds", request, tuple[int, int])
            except NotLeader:
                if loop.time() >= deadline_s:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _bounds_here(self, request: _Bounds) -> tuple[int, int]:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        await partition.wait_current()
        return partition.start_offset, partition.high_watermark


def _published(partition: int, where: Placement) -> Published:
    if where.offset is not None:
        text = message_id(partition, where.offset)
    else:
        text = "" if where.stage_number is None else stage_id(partition, where.stage_number)
    return Published(
        id=text,
        partition=partition,
        offset=where.offset,
        timestamp=where.timestamp,
        is_duplicate=where.is_duplicate,
        deliver_at_ms=where.due_ms,
    )


def message_id(partition: int, offset: int) -> str:
    """Return the id of a message that was published into the log at once."""
    return f"{partition}-{offset}"


def _checked(
    number: int, message: NewMessage, settings: TopicSettings, now_ms: int, *, era: int
) -> _Item:
    """Turn a message into a record that its topic accepts, or raise why it does not."""
    headers = _headers_of(message)
    timestamp = now_ms if message.timestamp is None else message.timestamp
    if not 0 <= timestamp <= TIME_MS_MAX:
        raise InvalidTimestamp(f"a message is dated {timestamp} ms, not 0 to {TIME_MS_MAX}")
    if not settings.uses_append_time:
        check_time(timestamp, settings, now_ms)
    if message.key is None and settings.log.compacts:
        raise InvalidBatch("a message without a key was sent, which a compacted topic needs")
    size_bytes = len(message.key or b"") + len(message.value or b"") + _RECORD_OVERHEAD_BYTES
    for name, value in headers:
        size_bytes += len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD_BYTES
    if size_bytes + HEADER_BYTES > settings.batch_bytes_max:
        raise BatchTooLarge(
            f"a message that takes about {size_bytes + HEADER_BYTES} bytes as a batch was sent,"
            f" max.message.bytes is {settings.batch_bytes_max}"
        )
    return _Item(number, timestamp, message.key, message.value, headers, size_bytes, era)


def _headers_of(message: NewMessage) -> tuple[tuple[str, bytes | None], ...]:
    """Return all headers; what the message says itself stands above a header of that name."""
    given: dict[str, str] = {}
    if message.priority != PRIORITY_NORMAL:
        if not 0 <= message.priority <= PRIORITY_MAX:
            raise InvalidRequest(f"priority is {message.priority}, not 0 to {PRIORITY_MAX}")
        given[PRIORITY] = str(message.priority)
    if message.deliver_at_ms is not None:
        given[DELIVER_AT] = str(message.deliver_at_ms)
    if message.expires_at_ms is not None:
        given[EXPIRES_AT] = str(message.expires_at_ms)
    if message.idempotency_key is not None:
        given[IDEMPOTENCY_KEY] = message.idempotency_key
    if not given and not message.headers:
        return ()
    kept = [(name, value) for name, value in message.headers if name not in given]
    headers = (*kept, *((name, value.encode()) for name, value in given.items()))
    attributes_of(headers)
    return headers


def time_in(headers: tuple[tuple[str, bytes | None], ...]) -> int | None:
    """Return the time of delivery that headers name; raise `InvalidRequest` where it is none."""
    return attributes_of(headers).deliver_at_ms


def _goes_anywhere(message: NewMessage) -> bool:
    return message.partition is None and message.key is None and message.idempotency_key is None


def _partition_of(message: NewMessage, topic: Topic, spares: Iterator[int]) -> int:
    """Choose the partition; messages that do not care take the next of `spares`."""
    if _goes_anywhere(message):
        return next(spares)
    if message.partition is not None:
        if not 0 <= message.partition < topic.partitions:
            raise TopicNotFound(
                f"partition {message.partition} was asked for, {topic.name} has"
                f" {topic.partitions} partitions"
            )
        return message.partition
    if message.key is not None:
        return partition_of_key(message.key, topic.partitions)
    assert message.idempotency_key is not None
    # Where the first copy went.
    return partition_of_idempotency_key(message.idempotency_key, topic.partitions)


def _batches(items: Sequence[_Item], bytes_max: int) -> Iterator[Sequence[_Item]]:
    """Cut items into runs that fit one batch each."""
    bytes_max = min(bytes_max, _BATCH_BYTES_MAX) - HEADER_BYTES
    start = 0
    size_bytes = 0
    for number, item in enumerate(items):
        is_full = size_bytes + item.size_bytes > bytes_max or number - start >= _BATCH_RECORDS_MAX
        if number > start and is_full:
            yield items[start:number]
            start = number
            size_bytes = 0
        size_bytes += item.size_bytes
    yield items[start:]


def _encoded(items: Sequence[_Item]) -> bytearray:
    return encode_batch(
        [
            Record(delta, item.timestamp, item.key, item.value, item.headers)
            for delta, item in enumerate(items)
        ]
    )

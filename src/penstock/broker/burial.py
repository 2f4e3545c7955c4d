"""Copying messages that have failed too often to the dead letters.

The leader of the source partition does it: it appends the copies to the dead-letter topic, in the
partition of the same number, and when they are committed it settles the messages.

Crash cases:

- Before the copy is committed: the message is still dying, and the next leader copies it.
- After the copy is committed and before the message is settled: the next leader cannot know. It
  names what it has inherited, or what failed with an unknown outcome, as doubtful; the leader of
  the dead letters then looks for the copies among the newest records before it appends. Requests
  for one partition are carried out one after the other, so a copy that is on its way is found.
- A deposed leader's request that comes late: requests carry the leader's term, and one of an older
  term than was seen is refused. The idempotency key of each copy says the same for some minutes,
  whoever leads.
- The group begins anew while its messages are copied: what has died in its new life is copied, too.
- The source record is gone by retention: there is nothing to copy, and the message is settled.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

import msgspec

from penstock.broker.calls import Calls
from penstock.broker.topics import NewTopic, Topics
from penstock.clock import Clock
from penstock.cluster import Cluster, Partition, PartitionQueue, Topic
from penstock.delivery import Dying
from penstock.errors import Conflict, InvalidRequest, PenstockError, TopicExists
from penstock.ids import TopicPartition
from penstock.record import (
    DELIVER_AT,
    EXPIRES_AT,
    ID,
    IDEMPOTENCY_KEY,
    Record,
    RecordBatch,
    attributes_of,
    decode_records,
    encode_batch,
    read_header,
)

logger = logging.getLogger(__name__)

DLQ_PREFIX = "penstock-dlq-"
SOURCE_TOPIC = "penstock-dlq-topic"
SOURCE_PARTITION = "penstock-dlq-partition"
SOURCE_OFFSET = "penstock-dlq-offset"
SOURCE_ID = "penstock-dlq-id"
SOURCE_TIMESTAMP = "penstock-dlq-timestamp"
GROUP = "penstock-dlq-group"
ATTEMPTS = "penstock-dlq-attempts"
REASON = "penstock-dlq-reason"
ERROR = "penstock-dlq-error"
REDRIVEN = "penstock-redriven"

# When to deliver a message, up to when, and by which name, is over with its first life.
_FIRST_LIFE = frozenset((ID, DELIVER_AT, EXPIRES_AT, IDEMPOTENCY_KEY))

Headers = tuple[tuple[str, bytes | None], ...]

REJECTED = "rejected"
EXHAUSTED = "attempts exhausted"

_COPIES_MAX = 200
_COPIES_BYTES_MAX = 4 * 1024 * 1024
_PAUSE_MIN_S = 0.2
_PAUSE_MAX_S = 10.0
# How far back the leader of the dead letters looks for copies that may be there.
_LOOK_BACK_RECORDS = 100_000
_LOOK_BACK_BYTES = 1024 * 1024
_HEADROOM_BYTES = 64 * 1024
_INT32_MAX = 2**31 - 1


class _Copy(msgspec.Struct, frozen=True):
    idempotency_key: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class _Bury(msgspec.Struct, frozen=True):
    """Copies of one source partition, and which of them may be there already."""

    topic: str
    partition: int
    source: str
    term: int
    copies: list[_Copy]
    doubtful: list[str]


class Burial:
    """Moves dying messages of the partitions that this node leads."""

    def __init__(self, cluster: Cluster, calls: Calls, topics: Topics, clock: Clock) -> None:
        self._cluster = cluster
        self._calls = calls
        self._topics = topics
        self._clock = clock
        self._tasks: dict[tuple[TopicPartition, str], asyncio.Task[None]] = {}
        self._doubtful: dict[tuple[TopicPartition, str], set[int]] = {}
        # On the leader of the dead letters.
        self._turns: dict[TopicPartition, asyncio.Lock] = {}
        self._terms: dict[str, int] = {}
        cluster.replicas.delivery.on_dying = self._noticed
        calls.serve("queue.bury", _Bury, self._bury_here)

    def _noticed(self, place: TopicPartition, group: str, is_inherited: bool) -> None:
        key = (place, group)
        queue = self._queue(place)
        if queue is None:
            return
        if is_inherited:
            self._doubtful.setdefault(key, set()).update(queue.ledger(group).dying)
        if key not in self._tasks:
            self._tasks[key] = asyncio.ensure_future(self._move(place, group))

    async def _move(self, place: TopicPartition, group: str) -> None:
        """Copy and settle until nothing is dying or this node does not lead any more."""
        try:
            await self._move_all(place, group)
        finally:
            # In the same step in which nothing was found: who comes later is not overheard.
            self._tasks.pop((place, group), None)

    async def _move_all(self, place: TopicPartition, group: str) -> None:
        pause_s = _PAUSE_MIN_S
        while True:
            queue = self._queue(place)
            ledger = queue.groups.get(group) if queue else None
            if queue is None or ledger is None or not ledger.dying:
                self._doubtful.pop((place, group), None)
                return
            try:
                dying = dict(list(ledger.dying.items())[:_COPIES_MAX])
                await self._move_some(queue, group, dying)
                pause_s = _PAUSE_MIN_S
            except PenstockError as error:
                logger.warning(
                    "dead letters wait",
                    extra={"log": str(place), "group": group, "reason": str(error)},
                )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    def _queue(self, place: TopicPartition) -> PartitionQueue | None:
        """Return the queue of a partition that this node leads; None when it does so no more."""
        try:
            partition = self._cluster.partition(place)
        except PenstockError:
            return None
        return partition.queue if partition.log.is_serving else None

    async def _move_some(self, queue: PartitionQueue, group: str, dying: dict[int, Dying]) -> None:
        source = self._cluster.metadata.topic(queue.place.topic)
        ledger = queue.ledger(group)
        doubtful = self._doubtful.setdefault((queue.place, group), set())
        copies: dict[int, _Copy] = {}
        gone = []
        size_bytes = 0
        for offset, death in dying.items():
            record = queue.records.get(offset)
            if record is None:
                gone.append(offset)
                continue
            name = _name_of(source, queue.place, group, offset, ledger.first_delivered_ms(offset))
            copies[offset] = _copy_of(name, queue.place, group, record, death)
            size_bytes += len(record.value or b"")
            if size_bytes > _COPIES_BYTES_MAX:
                break
        if copies:
            place = await self._grave(source, queue, group)
            request = _Bury(
                place.topic,
                place.partition,
                f"{source.topic_id}/{queue.place.partition}",
                queue.log.term,
                list(copies.values()),
                [copy.idempotency_key for offset, copy in copies.items() if offset in doubtful],
            )
            # Until it is answered nobody knows whether the copies are there.
            doubtful.update(copies)
            await self._calls.ask(place, "queue.bury", request, bool)
        settled = [*copies, *gone]
        if queue.groups.get(group) is ledger:
            # Else the group has begun anew, and what is dying now has no copy of that death.
            await queue.dead_lettered(group, settled)
        doubtful.difference_update(settled)

    async def _grave(self, source: Topic, queue: PartitionQueue, group: str) -> TopicPartition:
        """Return the partition of the dead letters, creating their topic where it is missing."""
        name = queue.settings_of(group).dead_letter_topic
        metadata = self._cluster.metadata
        if name not in metadata.topics:
            bytes_max = self._cluster.settings(source.name).batch_bytes_max + _HEADROOM_BYTES
            # Nodes may have been drained or removed since. Fewer copies are better than messages
            # that are neither delivered nor dead, and hold up those behind them.
            replicas = min(len(source.replicas[0].members), len(metadata.replica_takers))
            new = NewTopic(
                name,
                partitions=source.partitions,
                replication_factor=max(1, replicas),
                settings={
                    "retention.ms": "-1",
                    "max.message.bytes": str(min(bytes_max, _INT32_MAX)),
                },
            )
            try:
                await self._topics.create(new)
            except TopicExists:
                logger.debug("another node was faster", extra={"topic": name})
        partitions = metadata.topic(name).partitions
        return TopicPartition(name, queue.place.partition % partitions)

    # On the leader of the dead letters.

    async def _bury_here(self, request: _Bury) -> bool:
        place = TopicPartition(request.topic, request.partition)
        async with self._turns.setdefault(place, asyncio.Lock()):
            partition = self._cluster.partition(place)
            partition.check_serving()
            if request.term < self._terms.get(request.source, 0):
                raise Conflict(
                    f"term {request.term} of the source partition is over; it is at"
                    f" {self._terms[request.source]}"
                )
            self._terms[request.source] = request.term
            present = _present(partition, set(request.doubtful))
            copies = [each for each in request.copies if each.idempotency_key not in present]
            if copies:
                # By way of the keys: this node may know nothing of a newer term of the source.
                window_ms = self._cluster.settings(request.topic).idempotency_window_ms
                batch = self._batch_of(copies)
                placed = partition.intake.publish(batch, window_ms=window_ms)
                await (placed or partition.publish(batch))
        return True

    def _batch_of(self, copies: Sequence[_Copy]) -> RecordBatch:
        now_ms = self._clock.now_ms()
        records = [
            Record(
                number,
                now_ms,
                copy.key,
                copy.value,
                (*copy.headers, (IDEMPOTENCY_KEY, copy.idempotency_key.encode())),
            )
            for number, copy in enumerate(copies)
        ]
        data = memoryview(encode_batch(records))
        return RecordBatch(read_header(data), data)

    async def close(self) -> None:
        """Stop; what is dying stays so until the next leader takes it up."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _name_of(
    topic: Topic, place: TopicPartition, group: str, offset: int, first_ms: int | None
) -> str:
    """Return what a copy is known by, whoever makes it.

    A group that begins anew has messages for another time. Each of their lives begins with another
    first delivery, and each may end among the dead letters.
    """
    return f"{topic.topic_id}/{place.partition}/{offset}/{group}/{first_ms}"


def source_of(headers: Headers, group: str) -> tuple[UUID, str] | None:
    """Return the id of the topic in which a message died for a group, and its own id there.

    None for what did not die for this group, and for what another client says of itself.
    """
    notes = dict(headers)
    identity = notes.get(SOURCE_ID)
    if identity is None:
        return None
    name = (notes.get(IDEMPOTENCY_KEY) or b"").decode(errors="replace")
    topic_id, _, rest = name.partition("/")
    if not rest.rpartition("/")[0].endswith(f"/{group}"):
        return None
    with suppress(ValueError):
        return UUID(topic_id), identity.decode(errors="replace")
    return None


def _copy_of(name: str, place: TopicPartition, group: str, record: Record, death: Dying) -> _Copy:
    """Return the record with a note about its end."""
    source_id = next((value for name, value in record.headers if name == ID), None)
    notes = {
        SOURCE_TOPIC: place.topic,
        SOURCE_PARTITION: place.partition,
        SOURCE_OFFSET: record.offset,
        SOURCE_TIMESTAMP: record.timestamp,
        GROUP: group,
        ATTEMPTS: death.attempts,
        REASON: REJECTED if death.is_rejected else EXHAUSTED,
        ERROR: death.reason,
    }
    identity = source_id or f"{place.partition}-{record.offset}".encode()
    return _Copy(
        name,
        record.key,
        record.value,
        (
            *_kept(record.headers),
            (SOURCE_ID, identity),
            *((name, str(value).encode()) for name, value in notes.items()),
        ),
    )


def _kept(headers: Headers) -> Headers:
    """Return the headers of a message without those that concern its first life alone.

    One that was published past the doors may say nonsense, which no partition would take.
    """
    kept = []
    for name, value in headers:
        if name not in _FIRST_LIFE and not name.startswith(DLQ_PREFIX):
            with suppress(InvalidRequest):
                attributes_of([(name, value)])
                kept.append((name, value))
    return tuple(kept)


def _present(partition: Partition, wanted: set[str]) -> set[str]:
    """Return which of these copies are among the newest records."""
    found: set[str] = set()
    if not wanted:
        return found
    offset = int(max(partition.start_offset, partition.high_watermark - _LOOK_BACK_RECORDS))
    searched = {key.encode(): key for key in wanted}
    while (part := partition.read(offset, bytes_max=_LOOK_BACK_BYTES)) is not None:
        view = memoryview(part.read())
        while view:
            header = read_header(view)
            batch = bytes(view[: header.size_bytes])
            # Copies are not compressed, so most batches can be told apart without decoding.
            if any(key in batch for key in searched):
                for record in decode_records(batch):
                    found.update(
                        searched[value]
                        for name, value in record.headers
                        if name == IDEMPOTENCY_KEY and value in searched
                    )
            offset = header.next_offset
            view = view[header.size_bytes :]
    return found

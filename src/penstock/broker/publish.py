"""Publishing: check a batch against its topic, then propose it."""

import asyncio
from collections.abc import Callable
from itertools import islice

import msgspec

from penstock.broker.statistics import Statistics
from penstock.clock import Clock
from penstock.cluster import Cluster, DiskSpace, Partition, Placed, TopicSettings
from penstock.errors import (
    BatchTooLarge,
    InvalidBatch,
    InvalidRecords,
    InvalidTimestamp,
    NotEnoughReplicas,
    Unavailable,
    UnsupportedCompression,
)
from penstock.ids import Offset, TopicPartition
from penstock.record import (
    FAULTS_MAX,
    NO_PRODUCER_ID,
    BatchHeader,
    Codec,
    RecordBatch,
    decode_records,
    first_batch,
    read_header,
    split_batches,
    stamp_append_time,
)

_CODEC_MAX = max(Codec)
# What the setting is where nobody gave a limit.
_ANY_AGE_MS = 2**63 - 1


class Publication(msgspec.Struct, frozen=True):
    """A batch on its way: its first offset once it is committed, and what is known before.

    `append_time_ms` is -1 when the records keep their producer's time.
    """

    offset: asyncio.Future[Offset]
    append_time_ms: int
    start_offset: Offset
    placed: asyncio.Future[Placed] | None = None
    """Where each message went, for batches that are not appended as they came."""


class Publisher:
    """Takes record batches as clients encoded them."""

    def __init__(
        self, cluster: Cluster, space: DiskSpace, clock: Clock, statistics: Statistics
    ) -> None:
        self._cluster = cluster
        self._space = space
        self._clock = clock
        self._statistics = statistics

    def publish(
        self,
        place: TopicPartition,
        records: memoryview,
        *,
        waits_for_commit: bool = True,
        on_settled: Callable[[], None] | None = None,
    ) -> Publication:
        """Append one batch; its offset is known once it is committed.

        `records` must be writable and must not change afterwards: it is written as it is.
        `on_settled` is called when the offset is known or the batch has failed, later than this
        returns.
        """
        partition = self._cluster.partition(place)
        settings = self._cluster.settings(place.topic)
        batch = self._timed(self._checked(place, records, settings), settings)
        try:
            self._space.check()
            if waits_for_commit and settings.in_sync_min > 1:
                _check_in_sync(partition, settings)
        except Unavailable as error:
            partition.refuse(batch.header, error)
            raise
        return self._propose(
            partition,
            batch,
            settings,
            waits_for_commit=waits_for_commit,
            on_settled=on_settled,
        )

    def check(self, place: TopicPartition, records: memoryview) -> None:
        """Raise why a batch could not be published at this moment."""
        settings = self._cluster.settings(place.topic)
        partition = self._cluster.partition(place)
        batch = self._checked(place, records, settings)
        if not settings.uses_append_time:
            _check_times(batch, settings, self._clock.now_ms())
        partition.intake.check(batch)
        self._space.check()
        partition.check_serving()
        if settings.in_sync_min > 1:
            _check_in_sync(partition, settings)

    def publish_checked(self, place: TopicPartition, records: memoryview) -> Publication:
        """Append a batch that was checked before, under whatever settings held then."""
        settings = self._cluster.settings(place.topic)
        (batch,) = split_batches(records)
        if settings.uses_append_time:
            batch = self._timed(batch, settings)
        partition = self._cluster.partition(place)
        return self._propose(partition, batch, settings, waits_for_commit=True)

    def _propose(
        self,
        partition: Partition,
        batch: RecordBatch,
        settings: TopicSettings,
        *,
        waits_for_commit: bool,
        on_settled: Callable[[], None] | None = None,
    ) -> Publication:
        try:
            placed = partition.intake.publish(batch, window_ms=settings.idempotency_window_ms)
        except Unavailable as error:
            partition.refuse(batch.header, error)
            raise
        if placed is None:
            offset = partition.publish(
                batch, waits_for_commit=waits_for_commit, on_settled=on_settled
            )
        else:
            offset = _offset_of(placed)
            if on_settled is not None:
                offset.add_done_callback(lambda _: on_settled())
        counts = self._statistics
        size_bytes = len(batch.data)
        counts.batches_in += 1
        counts.records_in += batch.header.records
        counts.bytes_in += size_bytes
        partition.traffic.bytes_in += size_bytes
        append_time_ms = batch.header.max_timestamp if settings.uses_append_time else -1
        return Publication(offset, append_time_ms, partition.start_offset, placed)

    def _checked(
        self, place: TopicPartition, records: memoryview, settings: TopicSettings
    ) -> RecordBatch:
        batch = first_batch(records)
        size_bytes = len(batch.data)
        if size_bytes < len(records):
            count = len(split_batches(records))
            raise InvalidBatch(f"{count} batches were sent for {place}, a request carries one")
        header = batch.header
        if size_bytes > settings.batch_bytes_max:
            raise BatchTooLarge(
                f"a batch of {size_bytes} bytes was sent for {place}, max.message.bytes is"
                f" {settings.batch_bytes_max}"
            )
        if header.attributes or header.producer_id != NO_PRODUCER_ID:
            _check_kind(header)
        if settings.log.compacts:
            _check_keys(place, batch)
        return batch

    def _timed(self, batch: RecordBatch, settings: TopicSettings) -> RecordBatch:
        now_ms = self._clock.now_ms()
        if settings.uses_append_time:
            stamp_append_time(batch.data, now_ms)
            return RecordBatch(read_header(batch.data), batch.data)
        _check_times(batch, settings, now_ms)
        return batch


def _check_kind(header: BatchHeader) -> None:
    """Refuse what only a broker writes, and compression that nobody could open."""
    if header.codec > _CODEC_MAX:
        raise UnsupportedCompression(
            f"compression code {header.codec} is unknown; the known ones are 0 to {_CODEC_MAX}"
        )
    if header.is_control:
        raise InvalidBatch("control batches are written by the broker alone")
    if header.is_release:
        raise InvalidBatch(f"producer id {header.producer_id} is the broker's own")


def _check_times(batch: RecordBatch, settings: TopicSettings, now_ms: int) -> None:
    earliest_ms = now_ms - settings.timestamp_before_max_ms
    latest_ms = now_ms + settings.timestamp_after_max_ms
    newest_ms, first_ms = batch.header.max_timestamp, batch.header.base_timestamp
    if not (earliest_ms <= newest_ms <= latest_ms and earliest_ms <= first_ms <= latest_ms):
        check_time(newest_ms, settings, now_ms)
        check_time(first_ms, settings, now_ms)
    if settings.timestamp_before_max_ms < _ANY_AGE_MS and batch.header.records > 1:
        # The header has the time of the first record and the newest one; any other may be older.
        oldest_ms = min(record.timestamp for record in decode_records(batch.data))
        check_time(oldest_ms, settings, now_ms)


def _offset_of(placed: asyncio.Future[Placed]) -> asyncio.Future[Offset]:
    """Return the offset that the batch is answered with, once it is known."""
    offset: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()

    def settle(done: asyncio.Future[Placed]) -> None:
        if offset.done():
            return
        if done.cancelled():
            offset.cancel()
        elif (error := done.exception()) is not None:
            offset.set_exception(error)
        else:
            offset.set_result(done.result().offset)

    placed.add_done_callback(settle)
    return offset


def check_time(timestamp: int, settings: TopicSettings, now_ms: int) -> None:
    """Raise when a record is dated further from now than its topic allows."""
    if timestamp - now_ms > settings.timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"a record is dated {timestamp - now_ms} ms ahead, at most"
            f" {settings.timestamp_after_max_ms} ms are allowed"
        )
    if now_ms - timestamp > settings.timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"a record is dated {now_ms - timestamp} ms back, at most"
            f" {settings.timestamp_before_max_ms} ms are allowed"
        )


def _check_in_sync(partition: Partition, settings: TopicSettings) -> None:
    """A majority is always waited for; a topic may ask for more replicas in step than that."""
    partition.check_serving()
    in_step = 1 + sum(follower.is_active for follower in partition.log.followers())
    if in_step < settings.in_sync_min:
        raise NotEnoughReplicas(
            f"{partition.place} has {in_step} replicas in step, min.insync.replicas is"
            f" {settings.in_sync_min}"
        )


def _check_keys(place: TopicPartition, batch: RecordBatch) -> None:
    """Compaction keeps the latest record of each key, so each record needs one."""
    fault = f"it has no key, which {place.topic!r} needs as a compacted topic"
    numbered = enumerate(decode_records(batch.data))
    keyless = (number for number, record in numbered if record.key is None)
    faults = dict.fromkeys(islice(keyless, FAULTS_MAX), fault)
    if faults:
        raise InvalidRecords.of(faults)

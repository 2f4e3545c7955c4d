"""Reads a range of offsets of one partition, as executors do.

The records come straight from the partition's leader. While one answer is decoded the next one is
on its way. A leader that moves, a broker that goes away and an answer without records are
overcome by asking again, until nothing has come for `FetchSettings.patience_ms`.

A range may hold fewer records than offsets: compaction and markers of transactions leave holes.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from kio.schema.errors import ErrorCode

from penstock.errors import NotFound, OffsetOutOfRange, PenstockError, Unavailable
from penstock.ids import TopicPartition
from penstock.spark.brokers import (
    EARLIEST,
    LATEST,
    brokers_of,
    raise_for_code,
)
from penstock.spark.connection import BrokerConnection
from penstock.spark.decoding import FetchedBatches
from penstock.spark.ranges import SETTINGS_DEFAULT, FetchSettings, RecordRange, place_of
from penstock.spark.retries import Patience
from penstock.spark.schema import COLUMNS, check_columns
from penstock.spark.wire import FetchAnswer, FetchRequest

_log = logging.getLogger("penstock.spark")
_SAMPLE_BYTES = 64 << 10


def read_range(
    bootstrap: str,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    columns: Sequence[str] = COLUMNS,
    settings: FetchSettings = SETTINGS_DEFAULT,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition with offsets from `start` up to, without, `end`.

    Waits for records that are not there yet. Errors name the topic, the partition and the offset.
    """
    check_columns(columns)
    reader = RangeReader(bootstrap, RecordRange(topic, partition, start, end), settings)
    try:
        yield from reader.record_batches(columns)
    finally:
        reader.close()


def bytes_per_offset(bootstrap: str, records: RecordRange, settings: FetchSettings) -> float:
    """Return how many bytes an offset takes, as stored, in a small sample of a range."""
    reader = RangeReader(bootstrap, records, replace(settings, fetch_bytes=_SAMPLE_BYTES))
    try:
        fetched = reader.fetch()
        return 0.0 if fetched is None else fetched.size_bytes / fetched.offsets
    finally:
        reader.close()


class RangeReader:
    """Goes through one range; `offset` is where it stands."""

    def __init__(self, bootstrap: str, records: RecordRange, settings: FetchSettings) -> None:
        self.offset = records.start
        self._end = records.end
        self._where = TopicPartition(records.topic, records.partition)
        self._settings = settings
        self._brokers = brokers_of(bootstrap, settings.request_wait_ms / 1000)
        self._connection: BrokerConnection | None = None
        self._patience = Patience(settings.patience_ms / 1000)

    def record_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records up to the end of the range."""
        while self.offset < self._end:
            bounds = (self.offset, self._end)
            fetched = self.fetch()
            if fetched is not None:
                yield from fetched.record_batches(bounds, columns)

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._brokers.give_back(self._connection)
            self._connection = None

    def fetch(self) -> FetchedBatches | None:
        """Return the next batches; None when there were none, or when some were lost."""
        try:
            answer = self._ask()
            if answer.error_code == ErrorCode.offset_out_of_range:
                self._skip_what_is_lost()
                return None
            raise_for_code(answer.error_code, "fetch")
            fetched = FetchedBatches(self._where, self.offset, answer)
            if fetched.next_offset <= self.offset:
                raise Unavailable(f"no records came, the end is {answer.high_watermark}")
        except NotFound as error:
            self._drop_connection()
            self._end_when_topic_is_gone(error)
            return None
        except Unavailable as error:
            self._drop_connection()
            self._patience.pause(error, place_of(self._where, self.offset))
            return None
        self._advance(fetched.next_offset)
        return fetched

    def _ask(self) -> FetchAnswer:
        if self._connection is None:
            self._connection = self._brokers.lend_leader(self._where)
        if not self._connection.outstanding:
            self._connection.send_fetch(self._request())
        return self._connection.receive_fetch()

    def _advance(self, offset: int) -> None:
        self.offset = offset
        self._patience.succeeded()
        if offset >= self._end or self._connection is None:
            return
        try:
            self._connection.send_fetch(self._request())
        except Unavailable:
            self._drop_connection()

    def _request(self) -> FetchRequest:
        return FetchRequest(
            topic=self._where.topic,
            partition=self._where.partition,
            offset=self.offset,
            size_bytes_max=self._settings.fetch_bytes,
            wait_ms=self._settings.fetch_wait_ms,
            is_committed_only=self._settings.is_committed_only,
        )

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._brokers.forget(self._where)

    def _skip_what_is_lost(self) -> None:
        """Go on at the first offset that is left, unless losses shall be told.

        An offset past the end is waited for: a new leader may not know yet what is committed.
        """
        earliest = self._brokers.offsets({self._where: EARLIEST})[self._where]
        latest = self._brokers.offsets({self._where: LATEST})[self._where]
        if earliest <= self.offset:
            raise Unavailable(f"the partition holds offsets {earliest} to {latest}")
        lost = f"offsets up to {min(earliest, self._end)} are gone: the partition begins at"
        message = f"{place_of(self._where, self.offset)}: {lost} {earliest}"
        if self._settings.fails_on_data_loss:
            raise OffsetOutOfRange(f"{message}; failOnDataLoss=false reads what is left")
        _log.warning("records are gone and are left out", extra={"place": message})
        self.offset = min(earliest, self._end)

    def _end_when_topic_is_gone(self, error: PenstockError) -> None:
        place = place_of(self._where, self.offset)
        try:
            self._patience.pause(error, place)
        except NotFound:
            if self._settings.fails_on_data_loss:
                raise
            _log.warning("a topic is gone and is left out", extra={"place": place})
            self.offset = self._end

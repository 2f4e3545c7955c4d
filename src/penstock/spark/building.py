"""Batches in the making: one for each partition that a task writes to.

Rows are appended as they come. A batch is complete when the next record does not fit, and handed
on; what is left in the end goes with `finish`. Python is asked a few times for each partition and
Arrow record batch, and for each complete batch, never per record.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import BatchTooLarge, TopicNotFound
from penstock.ids import TopicPartition
from penstock.record import HEADER_BYTES, Codec, compress, frame_batch
from penstock.spark.batches import Bytes, Integers
from penstock.spark.encoding import SPARE_RUN, Rows, encode, group, route
from penstock.spark.rows import partitions_of, rows_of, topics_of

_ROOM_BYTES_MIN = 64 << 10


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What writing to a topic depends on."""

    partitions: int
    batch_bytes_max: int


@dataclass(frozen=True, slots=True)
class BuiltBatch:
    """A complete record batch for one partition, without a producer's numbers."""

    place: TopicPartition
    data: bytearray
    records: int


class BatchBuilder:
    """Turns the Arrow record batches of one task into record batches for partitions."""

    def __init__(
        self,
        shape_of: Callable[[str], TopicShape],
        *,
        task: int,
        topic: str | None,
        codec: Codec,
        bytes_max: int,
    ) -> None:
        self.task = task
        self._shape_of = shape_of
        self._topic = topic
        self._codec = codec
        self._bytes_max = bytes_max
        self._rows = 0
        # Tasks begin with different partitions, so that small ones do not all fill the same.
        self._spare = task * SPARE_RUN
        self._topics: dict[str, int] = {}
        self._counts: list[int] = []
        self._firsts: list[int] = []
        self._open: list[_OpenBatch] = []

    def add(self, batch: pa.RecordBatch, now_ms: int) -> Iterator[BuiltBatch]:
        """Take in rows; yield the batches that are complete."""
        if batch.num_rows == 0:
            return
        rows = rows_of(batch, first_row=self._rows, now_ms=now_ms)
        order, ends = self._grouped(rows, batch)
        for slot in np.flatnonzero(np.diff(ends)):
            wanted = order[ends[slot] : ends[slot + 1]]
            yield from self._open[slot].append(rows, wanted, self._rows)
        self._rows += batch.num_rows

    def finish(self) -> Iterator[BuiltBatch]:
        """Yield what is left."""
        for each in self._open:
            if each.records:
                yield each.close()

    def _grouped(self, rows: Rows, batch: pa.RecordBatch) -> tuple[Integers, Integers]:
        topics = self._topic_numbers(batch)
        wanted = partitions_of(batch, self._rows)
        slots = np.empty(batch.num_rows, np.int64)
        counts, firsts = np.array(self._counts), np.array(self._firsts)
        bad, self._spare = route(rows, wanted, topics, counts, firsts, self._spare, slots)
        if bad >= 0:
            name = list(self._topics)[topics[bad]]
            raise TopicNotFound(
                f"row {self._rows + bad}: partition is {wanted[bad]}, topic {name} has"
                f" {counts[topics[bad]]} partitions"
            )
        order = np.empty(batch.num_rows, np.int64)
        ends = np.empty(len(self._open) + 1, np.int64)
        group(slots, order, ends)
        return order, ends

    def _topic_numbers(self, batch: pa.RecordBatch) -> Integers:
        if self._topic is not None:
            return np.full(batch.num_rows, self._number_of(self._topic), np.int64)
        names, numbers = topics_of(batch, self._rows)
        known = np.array([self._number_of(name) for name in names], np.int64)
        found: Integers = known[numbers]
        return found

    def _number_of(self, topic: str) -> int:
        if topic not in self._topics:
            shape = self._shape_of(topic)
            self._topics[topic] = len(self._topics)
            self._counts.append(shape.partitions)
            self._firsts.append(len(self._open))
            bytes_max = min(self._bytes_max, shape.batch_bytes_max)
            self._open += [
                _OpenBatch(
                    TopicPartition(topic, number), self._codec, bytes_max, shape.batch_bytes_max
                )
                for number in range(shape.partitions)
            ]
        return self._topics[topic]


class _OpenBatch:
    """The batch of one partition that rows are being appended to."""

    def __init__(
        self, place: TopicPartition, codec: Codec, bytes_max: int, record_bytes_max: int
    ) -> None:
        self._place = place
        self._codec = codec
        self._bytes_max = bytes_max
        self._record_bytes_max = record_bytes_max
        self._begin()

    def _begin(self) -> None:
        self.records = 0
        self._room: Bytes = np.empty(0, np.uint8)
        self._end = HEADER_BYTES
        self._base_timestamp = 0
        self._max_timestamp = 0

    def append(self, rows: Rows, order: Integers, first_row: int) -> Iterator[BuiltBatch]:
        """Append rows; yield the batches that became complete by that."""
        done = 0
        while done < len(order):
            if not self.records:
                self._base_timestamp = self._max_timestamp = int(rows.timestamps[order[done]])
            count, self._end, self._max_timestamp = encode(
                rows, order[done:], self._room, self._end, self.records,
                self._base_timestamp, self._max_timestamp,
            )  # fmt: skip
            self.records += count
            done += count
            if done < len(order) and not self._grow(first_row + int(order[done])):
                yield self.close()

    def _grow(self, row: int) -> bool:
        """Make room for the next record; False when the batch is complete."""
        limit = self._bytes_max
        if len(self._room) >= limit:
            if self.records:
                return False
            limit = self._record_bytes_max
            if len(self._room) >= limit:
                raise BatchTooLarge(
                    f"row {row}: the record for topic {self._place.topic} is larger than"
                    f" max.message.bytes, {limit}"
                )
        room = np.empty(min(limit, max(_ROOM_BYTES_MIN, 4 * len(self._room))), np.uint8)
        room[: self._end] = self._room[: self._end] if len(self._room) else 0
        self._room = room
        return True

    def close(self) -> BuiltBatch:
        """Return the batch as it stands, and begin another."""
        if self._codec == Codec.NONE:
            data = bytearray(self._room[: self._end].data)
        else:
            body = compress(self._codec, self._room[HEADER_BYTES : self._end].tobytes())
            data = bytearray(HEADER_BYTES) + body
        times = (self._base_timestamp, self._max_timestamp)
        frame_batch(data, codec=self._codec, records=self.records, times=times)
        built = BuiltBatch(self._place, data, self.records)
        self._begin()
        return built

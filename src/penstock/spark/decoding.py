"""From the bytes of one fetch answer to Arrow record batches.

Batches are checked against their CRC and decompressed one by one, which costs a few calls for each
of them; their records are decoded by the compiled loops of `batches`. Whatever is wrong with a
batch is raised with the topic, the partition and the offset where it stands.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from penstock.errors import (
    BadChecksum,
    Corruption,
    InvalidBatch,
    PenstockError,
    UnsupportedBatchFormat,
)
from penstock.ids import TopicPartition
from penstock.record import Codec, decompress
from penstock.spark.batches import (
    ATTRIBUTES,
    BAD_MAGIC,
    BASE_OFFSET,
    CRC,
    FITS,
    HEADER_BYTES,
    NEXT_OFFSET,
    POSITION,
    PRODUCER_ID,
    RECORD_BYTES_MIN,
    RECORDS,
    SIZE,
    TABLE_COLUMNS,
    Bytes,
    Integers,
    decode,
    scan,
)
from penstock.spark.columns import ColumnBuffers
from penstock.spark.ranges import place_of
from penstock.spark.schema import COLUMNS, COLUMNS_WITH_HEADERS
from penstock.spark.wire import FetchAnswer

# Spark holds one record batch at a time on each side of the socket.
RECORD_BATCH_BYTES = 8 << 20
_CODEC_MASK = 0x07
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_CHECKED_FROM = 21


class FetchedBatches:
    """The whole batches of one fetch answer from `start` on."""

    def __init__(self, where: TopicPartition, start: int, answer: FetchAnswer) -> None:
        self._where = where
        self._start = start
        self._aborted = answer.aborted
        self._view = answer.records
        self._data: Bytes = np.frombuffer(answer.records, np.uint8)
        self._data.flags.writeable = False
        self._table = self._scan()

    @property
    def next_offset(self) -> int:
        """The offset after the last batch; `start` when there is no whole batch."""
        return int(self._table[-1, NEXT_OFFSET]) if len(self._table) else self._start

    @property
    def offsets(self) -> int:
        """How many offsets the batches take."""
        return self.next_offset - int(self._table[0, BASE_OFFSET]) if len(self._table) else 0

    @property
    def size_bytes(self) -> int:
        """The bytes of the batches."""
        return int(self._table[:, SIZE].sum())

    def record_batches(
        self, bounds: tuple[int, int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records with offsets in `bounds`."""
        table = self._table
        shown = (table[:, NEXT_OFFSET] > bounds[0]) & (table[:, BASE_OFFSET] < bounds[1])
        if self._aborted:
            shown &= ~_taken_back(table, self._aborted)
        shown &= (table[:, ATTRIBUTES] & _CONTROL == 0) & (table[:, RECORDS] > 0)
        for group in self._groups(table[shown]):
            records = sum(int(rows[:, RECORDS].sum()) for _, rows in group)
            size_bytes = sum(int(rows[:, SIZE].sum()) for _, rows in group)
            buffers = ColumnBuffers(columns, records, size_bytes)
            counts = (0, 0)
            for data, rows in group:
                *counted, failed = decode(data, rows, bounds, buffers.columns, counts)
                counts = (counted[0], counted[1])
                if failed >= 0:
                    raise self._broken(rows[failed], "its records do not fit into it")
            if counts[0]:
                yield buffers.record_batch(*self._where, counts)

    def _scan(self) -> Integers:
        table = np.empty((len(self._data) // HEADER_BYTES + 1, TABLE_COLUMNS), np.int64)
        count, status = scan(self._data, table)
        if status != FITS:
            place = place_of(self._where, max(self._start, int(table[count, BASE_OFFSET])))
            if status == BAD_MAGIC:
                raise UnsupportedBatchFormat(f"{place}: a batch is not of record format 2")
            size = int(table[count, SIZE])
            raise Corruption(f"{place}: a batch says that it has {size} bytes")
        return table[:count]

    def _groups(self, table: Integers) -> Iterator[list[tuple[Bytes, Integers]]]:
        """Yield plain bytes and their rows, about as much as one record batch shall hold."""
        group: list[tuple[Bytes, Integers]] = []
        size_bytes = 0
        for data, rows in self._pieces(table):
            group.append((data, rows))
            size_bytes += int(rows[:, SIZE].sum())
            if size_bytes >= RECORD_BATCH_BYTES:
                yield group
                group, size_bytes = [], 0
        if group:
            yield group

    def _pieces(self, table: Integers) -> Iterator[tuple[Bytes, Integers]]:
        codecs = (table[:, ATTRIBUTES] & _CODEC_MASK).tolist()
        for is_plain, run in groupby(range(len(table)), lambda index: codecs[index] == Codec.NONE):
            indexes = list(run)
            for index in indexes:
                self._verify(table[index])
            if is_plain:
                yield self._plain(table[indexes[0] : indexes[-1] + 1])
            else:
                yield from (self._decompressed(table[index], codecs[index]) for index in indexes)

    def _plain(self, rows: Integers) -> tuple[Bytes, Integers]:
        rows[:, POSITION] += HEADER_BYTES
        rows[:, SIZE] -= HEADER_BYTES
        too_many = rows[:, RECORDS] * RECORD_BYTES_MIN > rows[:, SIZE]
        if too_many.any():
            row = rows[int(too_many.argmax())]
            raise self._broken(row, f"{row[SIZE]} bytes cannot hold {row[RECORDS]} records")
        return self._data, rows

    def _decompressed(self, row: Integers, codec: int) -> tuple[Bytes, Integers]:
        position, size = int(row[POSITION]), int(row[SIZE])
        try:
            plain = decompress(codec, self._view[position + HEADER_BYTES : position + size])
        except PenstockError as error:
            raise type(error)(f"{self._place(row)}: {error}") from None
        if row[RECORDS] * RECORD_BYTES_MIN > len(plain):
            raise self._broken(row, f"{len(plain)} bytes cannot hold {row[RECORDS]} records")
        row[POSITION], row[SIZE] = 0, len(plain)
        return np.frombuffer(plain, np.uint8), row[np.newaxis]

    def _verify(self, row: Integers) -> None:
        position, size, expected = int(row[POSITION]), int(row[SIZE]), int(row[CRC])
        actual = crc32c(self._view[position + _CHECKED_FROM : position + size])
        if actual != expected:
            raise BadChecksum(
                f"{self._place(row)}: a batch carries CRC {expected:#010x},"
                f" its bytes give {actual:#010x}"
            )

    def _broken(self, row: Integers, reason: str) -> InvalidBatch:
        return InvalidBatch(f"{self._place(row)}: a batch is broken: {reason}")

    def _place(self, row: Integers) -> str:
        return place_of(self._where, int(row[BASE_OFFSET]))


def load_loops() -> None:
    """Load the compiled loops for all that `FetchedBatches` calls them with."""
    table = np.empty((0, TABLE_COLUMNS), np.int64)
    for columns in (COLUMNS, COLUMNS_WITH_HEADERS):
        buffers = ColumnBuffers(columns, 1, 1)
        for data in (np.frombuffer(b"x", np.uint8), np.frombuffer(bytearray(b"x"), np.uint8)):
            scan(data, table)
            decode(data, table, (0, 1), buffers.columns, (0, 0))


def _taken_back(table: Integers, aborted: Collection[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Mark the batches of aborted transactions; each ends with the next marker of its producer."""
    waiting = sorted(aborted, key=lambda each: each[1], reverse=True)
    marks = np.zeros(len(table), np.bool_)
    open_ids: set[int] = set()
    for index, (base, attributes, producer_id) in enumerate(
        table[:, [BASE_OFFSET, ATTRIBUTES, PRODUCER_ID]].tolist()
    ):
        while waiting and waiting[-1][1] <= base:
            open_ids.add(waiting.pop()[0])
        if attributes & _CONTROL:
            open_ids.discard(producer_id)
        elif attributes & _TRANSACTIONAL and producer_id in open_ids:
            marks[index] = True
    return marks

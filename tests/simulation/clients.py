"""Those who publish and read, and remember what they were told.

A plain client sends a batch and forgets it when no answer comes in time. An idempotent one sends
its batches again until each is acknowledged; several are under way at once over a connection that
keeps their order and, when something is lost, breaks with all that follows, as TCP does.
"""

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from penstock.cluster.partition import Partition
from penstock.errors import DuplicateSequence, PenstockError
from penstock.ids import Offset
from penstock.record import Record, RecordBatch, encode_batch, read_header
from penstock.record.batch import CHECKED_FROM, CRC_POSITION
from penstock.testing.machine import ANY_LIFE
from tests.simulation.callers import Caller, Reply, Surroundings
from tests.simulation.referee import require

if TYPE_CHECKING:
    from tests.simulation.node import Node

_VALUE_BYTES = 8
_READ_BYTES_MAX = 1_500
_RECORDS_MAX = 3
_KEYS = 8
# Where the producer's three fields stand in a batch: id, epoch and first sequence.
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_CRC = struct.Struct(">I")
_UNIQUE = struct.Struct(">Q")


def _template(records: int, size_bytes: int, key: int) -> bytes:
    """A batch whose last record ends with room for a number; the one before is a tombstone."""
    values = [bytes(size_bytes)] * (records - 2) + [None] * (records > 1) + [bytes(size_bytes)]
    return bytes(
        encode_batch(
            [
                Record(number, 0, b"key %d" % ((key + number) % _KEYS), value)
                for number, value in enumerate(values)
            ]
        )
    )


_TEMPLATES = [
    (records, _template(records, size, key))
    for records in (1, 1, 1, 2, _RECORDS_MAX)
    for size in (8, 60)
    for key in range(_KEYS)
]


@dataclass(slots=True)
class Sent:
    """One batch that a client has sent, once or more often."""

    unique: int
    data: bytes
    producer: int
    sequence: int
    records: int
    offset: int = -1
    """Where it was acknowledged."""


@dataclass(slots=True)
class _Connection:
    """Keeps the order of what one client sends to one life of one node."""

    node: "Node"
    life: int
    number: int = 0
    expected: int = 0
    arrives_us: int = 0
    is_broken: bool = False


@dataclass(slots=True)
class Ledger:
    """What all clients together have sent and been told."""

    sent: dict[int, Sent] = field(default_factory=dict)
    acked: int = 0
    states_acked: int = 0
    reads: int = 0


class Client(Caller):
    """One client; `window` batches may be under way at once, 0 makes it a plain one."""

    def __init__(
        self,
        number: int,
        window: int,
        around: Surroundings,
        *,
        ledger: Ledger,
        interval_us: int,
    ) -> None:
        super().__init__(number, around, interval_us=interval_us)
        self.window = window
        self.pending: dict[int, Sent] = {}
        """Batches of an idempotent client that are not acknowledged, by sequence."""
        self._ledger = ledger
        self._sequence = 0
        self._connection: _Connection | None = None
        self._read_offset = 0
        self._epoch = 0
        self._watermark = 0

    def _act(self) -> None:
        if self.window and self.pending and self._is_late and self._connection is not None:
            self._connection.is_broken = True
            self._look_elsewhere()
        if self.window:
            self._publish_in_order()
        choice = self._random()
        if self._waits_for or self.is_stopping:
            return
        if choice < 0.3 or (self.window and choice < 0.8):
            self._read()
        elif choice < 0.85:
            self._publish_plain(waits_for_commit=choice < 0.8)
        elif choice < 0.9:
            self._delete()

    # Publishing.

    def _new_batch(self, producer: int, sequence: int) -> Sent:
        records, template = _TEMPLATES[int(self._random() * len(_TEMPLATES))]
        data = bytearray(template)
        unique = len(self._ledger.sent) + 1
        _UNIQUE.pack_into(data, len(data) - 1 - _VALUE_BYTES, unique)
        if producer >= 0:
            _PRODUCER.pack_into(data, _PRODUCER_AT, producer, 0, sequence)
        _CRC.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CHECKED_FROM:]))
        sent = Sent(unique, bytes(data), producer, sequence, records)
        self._ledger.sent[unique] = sent
        return sent

    def _publish_plain(self, *, waits_for_commit: bool) -> None:
        sent = self._new_batch(-1, -1)

        def publish(node: "Node", reply: Reply) -> None:
            assert node.partition is not None
            batch = _writable(sent.data)
            future = node.partition.publish(batch, waits_for_commit=waits_for_commit)
            future.add_done_callback(lambda done: reply(done, done.exception()))

        def acked(done: Any) -> None:
            if waits_for_commit:
                self._acked(sent, done.result())

        self._ask(publish, acked)

    def _delete(self) -> None:
        """Delete records, mostly few and rarely all that are known."""
        offset = Offset(int(self._watermark * self._random() ** 3))

        def delete(node: "Node", reply: Reply) -> None:
            assert node.partition is not None
            node.spawn(_delete_records(node.partition, offset, reply))

        def acked(answer: tuple[int, int]) -> None:
            epoch, start = answer
            require(start >= offset, "a deletion was acknowledged and not done", start, offset)
            self._referee.deleted(epoch, offset)
            self._ledger.states_acked += 1

        self._ask(delete, acked)

    def _acked(self, sent: Sent, offset: int) -> None:
        require(sent.offset in (-1, offset), "a batch was acknowledged at two places", sent, offset)
        stored = self._referee.batches.get(offset)
        require(
            stored is not None and stored[CRC_POSITION:] == sent.data[CRC_POSITION:],
            "a batch was acknowledged where another one is, or none",
            sent.unique,
            offset,
        )
        if sent.offset < 0:
            self._ledger.acked += 1
        sent.offset = offset

    # Idempotent publishing.

    def _publish_in_order(self) -> None:
        connection = self._connection
        if connection is None or connection.is_broken:
            node = self._referee.nodes[self._target]
            if not node.is_on:
                self._look_elsewhere()
                return
            connection = self._connection = _Connection(node, node.machine.life)
            for sequence in sorted(self.pending):
                self._send(connection, self.pending[sequence])
        elif len(self.pending) < self.window and not self.is_stopping:
            sent = self._new_batch(self.number, self._sequence)
            self._sequence += sent.records
            self.pending[sent.sequence] = sent
            self._send(connection, sent)

    def _send(self, connection: _Connection, sent: Sent) -> None:
        number, connection.number = connection.number, connection.number + 1
        self._sent_us = self._schedule.now_us
        if self._random() < self._network.loss:
            return
        connection.arrives_us = max(
            connection.arrives_us + 1, self._schedule.now_us + self._delay_us()
        )
        self._schedule.later_on(
            connection.node.machine,
            ANY_LIFE,
            connection.arrives_us - self._schedule.now_us,
            self._arrive,
            connection,
            number,
            sent,
        )

    def _arrive(self, connection: _Connection, number: int, sent: Sent) -> None:
        node = connection.node
        if number != connection.expected or connection.life != node.machine.life:
            return
        connection.expected += 1

        def publish(node: "Node", reply: Reply) -> None:
            assert node.partition is not None
            future = node.partition.publish(_writable(sent.data))
            if future.done():
                reply(future, future.exception())
            else:
                future.add_done_callback(lambda done: reply(done, done.exception()))

        def answered(result: Any, error: PenstockError | None, leader: int | None) -> None:
            if error is None:
                self._acked(sent, result.result())
                self._settle()
            elif connection is self._connection and not connection.is_broken:
                require(
                    not isinstance(error, DuplicateSequence) or sent.sequence not in self.pending,
                    "a batch is called a duplicate and its offset is not told",
                    error,
                )
                connection.is_broken = True
                self.refused += 1
                self._follow(error, leader)

        self._serve(node, publish, answered)

    def _settle(self) -> None:
        """Forget acknowledged batches from the oldest on, so that no more than a window is open."""
        for sequence in sorted(self.pending):
            if self.pending[sequence].offset < 0:
                return
            del self.pending[sequence]

    # Reading.

    def _read(self) -> None:
        offset = self._read_offset

        def read(node: "Node", reply: Reply) -> None:
            assert node.partition is not None
            partition = node.partition
            partition.log.check_serving()
            watermark = partition.high_watermark
            start = min(max(offset, partition.start_offset), watermark)
            part = partition.read(start, bytes_max=_READ_BYTES_MAX)
            data = part.read() if part is not None else b""
            self._referee.check_start(partition.leader_epoch, partition.start_offset)
            self._referee.check_watermark(partition.leader_epoch, watermark)
            end = self._referee.check_read(node, data, start=start, watermark=watermark)
            reply((partition.leader_epoch, watermark, end), None)

        self._ask(read, self._saw)

    def _saw(self, answer: tuple[int, int, int]) -> None:
        epoch, watermark, end = answer
        if epoch < self._epoch:
            # Kafka's clients do not listen to a leader that they know to be deposed.
            return
        require(
            watermark >= self._watermark or epoch == self._epoch,
            "a client saw the high watermark go back",
            answer,
        )
        self._epoch, self._watermark = epoch, max(watermark, self._watermark)
        self._read_offset = end if end < watermark and self._random() < 0.9 else 0
        self._ledger.reads += 1


async def _delete_records(partition: Partition, offset: Offset, reply: Reply) -> None:
    epoch = partition.leader_epoch
    try:
        start = await partition.delete_records(offset)
    except PenstockError as error:
        reply(None, error)
    else:
        reply((epoch, start), None)


def _writable(data: bytes) -> RecordBatch:
    copy = bytearray(data)
    return RecordBatch(read_header(copy), memoryview(copy))


def unique_of(batch: bytes) -> int:
    """Which batch this is, whatever offset and term were written into it."""
    (unique,) = _UNIQUE.unpack_from(batch, len(batch) - 1 - _VALUE_BYTES)
    return int(unique)

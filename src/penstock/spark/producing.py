"""Publishes record batches straight from an executor, over the Kafka protocol.

Each task is an idempotent producer of its own: whatever fails on the way is sent again, in order,
and a broker takes each batch once. A few batches are on their way to a leader while the next ones
are made. What may pass is tried again until no batch has been taken for as long as is allowed.
"""

from collections import defaultdict, deque
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from penstock.errors import BatchTooLarge, PenstockError, TopicNotFound, Unavailable
from penstock.ids import TopicPartition
from penstock.record import stamp_producer
from penstock.spark.brokers import brokers_of, raise_for_code
from penstock.spark.building import BuiltBatch
from penstock.spark.connection import Address, BrokerConnection
from penstock.spark.retries import Patience, retrying

# Brokers know the last five batches of a producer again.
_IN_FLIGHT_MAX = 5
_SEQUENCE_MASK = 0x7FFFFFFF
_STORED = (ErrorCode.none, ErrorCode.duplicate_sequence_number)


@dataclass(frozen=True, slots=True)
class _Leader:
    """A connection to a leader, and the partitions whose answers are outstanding there."""

    connection: BrokerConnection
    awaited: deque[TopicPartition]


class BatchProducer:
    """One idempotent producer."""

    def __init__(self, bootstrap: str, *, request_wait_ms: int, patience_ms: int) -> None:
        self._brokers = brokers_of(bootstrap, request_wait_ms / 1000)
        self._request_wait_ms = request_wait_ms
        self._patience_s = patience_ms / 1000
        self._patience = Patience(self._patience_s)
        self._producer = retrying(
            self._brokers.new_producer, self._brokers.forget_leaders, self._patience_s
        )
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._unacked: dict[TopicPartition, deque[bytearray]] = defaultdict(deque)
        self._leaders: dict[Address, _Leader] = {}

    def send(self, batch: BuiltBatch) -> None:
        """Send a batch; returns when few enough are on their way."""
        producer_id, epoch = self._producer
        sequence = self._sequences[batch.place]
        stamp_producer(
            memoryview(batch.data),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        self._sequences[batch.place] = (sequence + batch.records) & _SEQUENCE_MASK
        self._unacked[batch.place].append(batch.data)
        try:
            self._transmit(batch.place, batch.data)
        except PenstockError as error:
            self._recover(error)

    def finish(self) -> None:
        """Wait until everything is stored, and give the connections back."""
        while any(self._unacked.values()):
            try:
                for leader in list(self._leaders.values()):
                    while leader.awaited:
                        self._receive(leader)
            except PenstockError as error:
                self._recover(error)
        for leader in self._leaders.values():
            self._brokers.give_back(leader.connection)
        self._leaders.clear()

    def close(self) -> None:
        """Let go of all connections, whatever is outstanding."""
        for leader in self._leaders.values():
            leader.connection.close()
        self._leaders.clear()

    def _transmit(self, place: TopicPartition, data: bytearray) -> None:
        address = self._brokers.leader_of(place)
        leader = self._leaders.get(address)
        if leader is None:
            leader = self._leaders[address] = _Leader(self._brokers.lend(address), deque())
        while len(leader.awaited) >= _IN_FLIGHT_MAX:
            self._receive(leader)
        leader.connection.send_produce(place, data, self._request_wait_ms)
        leader.awaited.append(place)

    def _receive(self, leader: _Leader) -> None:
        answer = leader.connection.receive_produced()
        place = leader.awaited.popleft()
        if answer.error_code in _STORED:
            self._unacked[place].popleft()
            self._patience.succeeded()
            return
        told = f"topic {place.topic} partition {place.partition}"
        if answer.error_code == ErrorCode.message_too_large:
            raise BatchTooLarge(f"{told}: {answer.message or 'a batch is too large'}")
        if answer.error_code == ErrorCode.unknown_topic_or_partition:
            raise TopicNotFound(f"{told}: there is no such partition")
        raise_for_code(answer.error_code, f"{told}: {answer.message}" if answer.message else told)

    def _recover(self, error: PenstockError) -> None:
        """Begin anew with connections and leaders, and send again what nobody has confirmed."""
        while True:
            self._patience.pause(error)
            self.close()
            self._brokers.forget_leaders()
            try:
                for place, batches in self._unacked.items():
                    # In order, and one by one: a batch must not come before the one it follows.
                    for data in list(batches):
                        self._transmit(place, data)
                        self._receive_all()
                return
            except (Unavailable, TopicNotFound) as next_error:
                error = next_error

    def _receive_all(self) -> None:
        for leader in self._leaders.values():
            while leader.awaited:
                self._receive(leader)

"""Those who use messages one by one: consumers of queue groups, and those who publish for later."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.broker.queue_values import Nack, Reject
from penstock.cluster.deliveries import Delivery
from penstock.cluster.partition_intake import Placed, Placement
from penstock.delivery import Receipt, parse_receipt
from penstock.errors import PenstockError
from penstock.record import (
    DELIVER_AT,
    IDEMPOTENCY_KEY,
    PRIORITY,
    Record,
    RecordBatch,
    encode_batch,
    read_header,
)
from tests.simulation.books import Books
from tests.simulation.callers import Caller, Reply, Surroundings, answer
from tests.simulation.referee import require
from tests.simulation.services import WINDOW_MS

if TYPE_CHECKING:
    from tests.simulation.node import Node

_RECEIVE_MAX = 5
_HELD_MAX = 8
_KEYS = 5
_LATER_MS = 1_500
PLANNED = b"of planner"
"""Stands in every message that planners publish, and in its copies."""
_KNOWN_MAX = 30


class Consumer(Caller):
    """Receives for one group, and answers in every way that there is, or not at all."""

    def __init__(
        self, number: int, around: Surroundings, *, books: Books, group: str, interval_us: int
    ) -> None:
        super().__init__(number, around, interval_us=interval_us)
        self.is_gentle = False
        self._books = books
        self._group = group
        self._held: list[str] = []

    def hasten(self) -> None:
        """Ack everything, and quickly: nothing else is left to be tried."""
        self.is_gentle = True
        self._interval_us //= 4

    def _act(self) -> None:
        if self.is_stopping or self._waits_for:
            return
        if not self._held or (len(self._held) < _HELD_MAX and self._random() < 0.3):
            self._receive()
            return
        count = 1 + int(self._random() * len(self._held))
        receipts, self._held = self._held[:count], self._held[count:]
        choice = 0.0 if self.is_gentle else self._random()
        if choice < 0.6:
            self._ack(receipts)
        elif choice < 0.75:
            self._nack(receipts)
        elif choice < 0.82:
            self._extend(receipts)
        elif choice < 0.9:
            self._reject(receipts)
        # And otherwise their leases end.

    def _receive(self) -> None:
        count_max = 1 + int(self._random() * _RECEIVE_MAX)

        def receive(node: "Node", reply: Reply) -> None:
            name = f"consumer {self.number}"
            work = node.services.receive(self._group, count_max=count_max, consumer=name)
            node.spawn(answer(work, reply))

        def received(delivery: Delivery | None) -> None:
            if delivery is not None:
                self._held += [
                    str(Receipt(0, delivery.number, record.offset)) for record in delivery.records
                ]

        self._ask(receive, received)

    def _say(self, kind: str, receipts: list[str]) -> None:
        for text in receipts:
            receipt = parse_receipt(text)
            self._books.sent[kind].add((self._group, receipt.delivery, receipt.offset))

    def _ack(self, receipts: list[str]) -> None:
        self._say("ack", receipts)

        def ack(node: "Node", reply: Reply) -> None:
            work = node.services.settlement.ack("orders", self._group, receipts)
            node.spawn(answer(work, reply))

        def acked(outcomes: list[PenstockError | None]) -> None:
            for text, outcome in zip(receipts, outcomes, strict=True):
                if outcome is None:
                    self._books.check_acked(self._group, parse_receipt(text).offset)

        self._ask(ack, acked)

    def _nack(self, receipts: list[str]) -> None:
        self._say("nack", receipts)
        delay_ms = 20 if self._random() < 0.3 else None
        is_counted = self._random() < 0.8

        def nack(node: "Node", reply: Reply) -> None:
            items = [Nack(each, delay_ms, "not now", is_counted) for each in receipts]
            work = node.services.settlement.nack("orders", self._group, items)
            node.spawn(answer(work, reply))

        self._ask(nack, lambda _: None)

    def _extend(self, receipts: list[str]) -> None:
        def extend(node: "Node", reply: Reply) -> None:
            work = node.services.settlement.extend("orders", self._group, receipts, lease_ms=400)
            node.spawn(answer(work, reply))

        def extended(_: list[PenstockError | None]) -> None:
            self._held += receipts

        self._ask(extend, extended)

    def _reject(self, receipts: list[str]) -> None:
        self._say("reject", receipts)

        def reject(node: "Node", reply: Reply) -> None:
            items = [Reject(each, "never") for each in receipts]
            work = node.services.settlement.reject("orders", self._group, items)
            node.spawn(answer(work, reply))

        self._ask(reject, lambda _: None)


@dataclass(slots=True)
class Keyed:
    """A message with an idempotency key, and where it is if that is known."""

    record: Record
    placement: Placement | None = None


class Planner(Caller):
    """Publishes messages with times, priorities and keys, and changes its mind about some."""

    def __init__(
        self,
        number: int,
        around: Surroundings,
        *,
        books: Books,
        keyed: list[Keyed],
        interval_us: int,
    ) -> None:
        super().__init__(number, around, interval_us=interval_us)
        self.acked = 0
        self._books = books
        self._count = 0
        self._keyed = keyed
        """Messages with a key that anyone has published; others publish them, too."""
        self._scheduled: list[int] = []

    def _act(self) -> None:
        if self.is_stopping or self._waits_for:
            return
        choice = self._random()
        if choice < 0.65 or not self._scheduled:
            self._publish()
        else:
            at = int(self._random() * len(self._scheduled))
            self._change(self._scheduled.pop(at), is_cancelled=choice < 0.8)

    # Publishing.

    def _new_record(self, place: int, now_ms: int) -> Record:
        self._count += 1
        random = self._random
        headers: list[tuple[str, bytes | None]] = []
        if random() < 0.5:
            later_ms = int(_LATER_MS * random() ** 2)
            headers.append((DELIVER_AT, b"%d" % (now_ms + later_ms)))
        if random() < 0.3:
            headers.append((PRIORITY, b"%d" % int(10 * random())))
        if random() < 0.4:
            headers.append((IDEMPOTENCY_KEY, b"key %d of %d" % (self._count, self.number)))
        key = b"key %d" % int(_KEYS * random()) if random() < 0.7 else None
        value = b"%d of planner %d" % (self._count, self.number)
        return Record(place, now_ms, key, value, tuple(headers))

    def _publish(self) -> None:
        # A client goes by its own clock; here it is that of the node, which may have jumped.
        now_ms = self._referee.nodes[self._target].clock.now_ms()
        records = [self._new_record(place, now_ms) for place in range(1 + int(2 * self._random()))]
        if self._keyed and self._random() < 0.4:
            again = self._keyed[int(len(self._keyed) * self._random() ** 0.3)].record
            records.append(msgspec.structs.replace(again, offset=len(records)))
        for record in records:
            if any(name == IDEMPOTENCY_KEY for name, _ in record.headers):
                self._remember(record)

        def publish(node: "Node", reply: Reply) -> None:
            assert node.partition is not None
            partition = node.partition
            data = encode_batch(records)
            batch = RecordBatch(read_header(data), memoryview(data))
            placed = partition.intake.publish(batch, window_ms=WINDOW_MS)
            if placed is None:
                appended = partition.publish(batch)
                appended.add_done_callback(lambda done: reply(done, done.exception()))
            else:
                placed.add_done_callback(lambda done: reply(done, done.exception()))

        self._ask(publish, lambda done: self._published(records, done.result()))

    def _remember(self, record: Record) -> None:
        if self._find(record) is None:
            self._keyed.append(Keyed(record))
            del self._keyed[:-_KNOWN_MAX]

    def _find(self, record: Record) -> Keyed | None:
        return next((each for each in self._keyed if each.record.value == record.value), None)

    def _published(self, records: list[Record], result: Any) -> None:
        self.acked += 1
        if not isinstance(result, Placed):
            result = Placed(result, [Placement(result + n, None, 0) for n in range(len(records))])
        for record, placement in zip(records, result.messages, strict=True):
            self._check_placement(record, placement)
            if placement.stage_number is not None:
                self._scheduled = [*self._scheduled[-_KNOWN_MAX:], placement.stage_number]
            keyed = self._find(record)
            if keyed is not None and not self._is_cancelled(placement):
                self._compare(keyed, placement)

    def _compare(self, keyed: Keyed, placement: Placement) -> None:
        """A key has one place, until the message that is there is cancelled."""
        first = keyed.placement
        if first is None or self._is_cancelled(first):
            first = placement
        same = (first.offset, first.stage_number) == (placement.offset, placement.stage_number)
        require(same, "a key was answered with two places", keyed.record, first, placement)
        keyed.placement = first

    def _is_cancelled(self, placement: Placement) -> bool:
        return placement.stage_number in self._books.cancelled

    def _check_placement(self, record: Record, placement: Placement) -> None:
        books = self._books
        if placement.offset is not None:
            found = books.messages.get(placement.offset)
            is_there = found is not None and found.record.value == record.value
        else:
            number = placement.stage_number
            assert number is not None
            is_there = number in books.staged or number in books.released
            is_there = is_there or number in books.cancelled
        require(is_there, "a message was acknowledged and is not there", record, placement)

    # Second thoughts.

    def _change(self, number: int, *, is_cancelled: bool) -> None:
        due_ms = self._referee.nodes[self._target].clock.now_ms() + int(_LATER_MS * self._random())

        def change(node: "Node", reply: Reply) -> None:
            assert node.partition is not None
            stage = node.partition.stage
            work = stage.cancel([number]) if is_cancelled else stage.move([number], due_ms=due_ms)
            node.spawn(answer(work, reply))

        def changed(found: list[bool]) -> None:
            if is_cancelled and found[0]:
                is_gone = number in self._books.cancelled
                require(is_gone, "a cancellation was confirmed and is not final", number)

        self._ask(change, changed)

"""Histories of single messages that random search reaches rarely, step by step, as in `scripts`."""

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.broker.queue_values import Reject
from penstock.cluster.partition_queue import Delivery
from penstock.cluster.topic_machine import decode_events
from penstock.delivery import DeadLettered, GroupSettings, Receipt
from penstock.errors import PenstockError
from penstock.raft import Append, Entry, EntryKind, Message
from penstock.record import (
    DELIVER_AT,
    IDEMPOTENCY_KEY,
    Record,
    RecordBatch,
    encode_batch,
    read_header,
)
from tests.simulation.node import TICK_US, Node
from tests.simulation.scripts import Stage
from tests.simulation.services import WINDOW_MS
from tests.simulation.workloads import Workload

_GROUP = "workers"
_LEASE_TICKS = 10
_SETTINGS = GroupSettings(
    lease_ms=_LEASE_TICKS * TICK_US // 1000,
    attempts_max=5,
    backoff_min_ms=5,
    backoff_max_ms=5,
    dead_letter_topic="orders",
)


class MessageStage(Stage):
    """A quiet world with one queue group; its first node leads."""

    def __init__(self) -> None:
        super().__init__(3, workload=Workload.MESSAGES, groups={_GROUP: _SETTINGS})
        self.win(1)
        self.until(1, 2, 3, leads=1)
        assert self.world.referee.books is not None
        self.books = self.world.referee.books

    def now_ms(self) -> int:
        """The time on the leader."""
        return self[1].clock.now_ms()

    def hold_appends(self) -> None:
        """Let the leader lead on, and commit nothing."""
        self.network.passes = lambda message: not isinstance(message, Append)

    def ask(self, work: Callable[[Node], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Ask the leader for something; what it answers is put into the list."""
        answers: list[Any] = []

        async def answer() -> None:
            try:
                answers.append(await work(self[1]))
            except PenstockError as refusal:
                answers.append(refusal)

        self[1].soon(lambda: self[1].spawn(answer()))
        self.world.advance(1)
        return answers

    def send(self, *headers: tuple[str, bytes | None]) -> list[Any]:
        """Publish one message; the list gets its placement."""
        data = encode_batch([Record(0, self.now_ms(), None, b"of planner", headers)])
        batch = RecordBatch(read_header(data), memoryview(data))

        async def publish(node: Node) -> Any:
            assert node.partition is not None
            placed = node.partition.intake.publish(batch, window_ms=WINDOW_MS)
            return await (placed or node.partition.publish(batch))

        return self.ask(publish)

    def receive(self, count_max: int) -> Delivery:
        """Lease messages and wait until the lease is committed."""
        answers = self.ask(
            lambda node: node.services.receive(_GROUP, count_max=count_max, consumer="anna")
        )
        self.tick(3)
        (delivery,) = answers
        assert isinstance(delivery, Delivery), delivery
        return delivery

    def ack(self, delivery: Delivery) -> PenstockError | None:
        """Ack the first message of a delivery and return why that is refused, if it is."""
        offset = delivery.records[0].offset
        self.books.sent["ack"].add((_GROUP, delivery.number, offset))
        answers = self.ask(
            lambda node: node.services.settlement.ack("orders", _GROUP, [_receipt(delivery)])
        )
        self.tick(3)
        ((refusal,),) = answers
        if refusal is None:
            self.books.check_acked(_GROUP, offset)
        assert refusal is None or isinstance(refusal, PenstockError)
        return refusal


def _receipt(delivery: Delivery) -> str:
    """The receipt of the first message of a delivery."""
    return str(Receipt(0, delivery.number, delivery.records[0].offset))


def key_is_published_again_while_it_is_in_flight() -> None:
    """The first message with a key is not committed when the second comes."""
    stage = MessageStage()
    stage.hold_appends()
    first = stage.send((IDEMPOTENCY_KEY, b"once"))
    stage.tick()
    second = stage.send((IDEMPOTENCY_KEY, b"once"))
    stage.tick()
    assert first == second == []
    stage.heal()
    stage.tick(5)
    (placed,), (repeated,) = first[0].messages, second[0].messages
    assert (repeated.offset, repeated.is_duplicate) == (placed.offset, True)
    stage.settle()


def message_becomes_due_while_it_is_being_cancelled() -> None:
    """The time of a message comes between its cancellation and the commit of that."""
    stage = MessageStage()
    scheduled = stage.send((DELIVER_AT, b"%d" % (stage.now_ms() + 60)))
    stage.tick(3)
    (placement,) = scheduled[0].messages
    stage.hold_appends()
    cancelled = stage.ask(lambda node: _stage_of(node).cancel([placement.stage_number]))
    stage.tick(8)
    assert cancelled == []
    stage.heal()
    stage.tick(10)
    assert cancelled == [[True]]
    stage.settle()


def message_is_released_elsewhere_while_it_is_read() -> None:
    """A disk is slow to read what is due; another leader releases it, and the first leads again."""
    stage = MessageStage()
    scheduled = stage.send((DELIVER_AT, b"%d" % (stage.now_ms() + 60)))
    stage.tick(3)
    (placement,) = scheduled[0].messages
    stage[1].disk_us = 3_000_000
    stage.tick(8)
    reading = _stage_of(stage[1])._release
    stage[1].disk_us = 300
    stage.cut({2, 3})
    stage.win(2)
    stage.until(3, leads=2)
    stage.tick(10)
    assert not _stage_of(stage[2]).is_waiting(placement.stage_number)
    stage.heal()
    stage.until(1, 2, 3, leads=2)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    assert not reading.done()
    stage.tick(400)
    assert reading.done()
    stage.settle()


def _stage_of(node: Node) -> Any:
    assert node.partition is not None
    return node.partition.stage


def receipt_outlives_its_lease() -> None:
    """A consumer acks under a lease that has ended, while another one holds the message."""
    stage = MessageStage()
    stage.send()
    stage.tick(3)
    late = stage.receive(1)
    stage.tick(_LEASE_TICKS + 2)
    in_time = stage.receive(1)
    assert stage.ack(late) is not None
    assert stage.ack(in_time) is None
    stage.settle()


def lease_of_one_of_two_is_extended() -> None:
    """Two messages of one delivery: one comes back in its time, the other later."""
    stage = MessageStage()
    for _ in range(2):
        stage.send()
    stage.tick(3)
    both = stage.receive(2)
    assert len(both.records) == 2
    extended = stage.ask(
        lambda node: node.services.settlement.extend(
            "orders", _GROUP, [_receipt(both)], lease_ms=60_000
        )
    )
    stage.tick(_LEASE_TICKS + 2)
    assert extended == [[None]]
    back = stage.receive(2)
    assert [record.offset for record in back.records] == [both.records[1].offset]
    stage.settle()


def leader_is_lost_between_a_copy_and_its_settlement() -> None:
    """A dead letter is copied, and the next leader finds its message still dying."""
    stage = MessageStage()
    stage.send()
    stage.tick(3)
    delivery = stage.receive(1)
    stage.network.passes = _settles_no_dead_letter
    stage.books.sent["reject"].add((_GROUP, delivery.number, delivery.records[0].offset))
    stage.ask(
        lambda node: node.services.settlement.reject(
            "orders", _GROUP, [Reject(_receipt(delivery), "never")]
        )
    )
    stage.tick(8)
    assert len(stage.books._copies) == 1
    assert stage.books.groups[_GROUP].dying
    stage.power_off(1)
    stage.heal()
    stage.win(2)
    stage.until(2, 3, leads=2)
    stage.tick(10)
    assert not stage.books.groups[_GROUP].dying
    stage.settle()


def _settles_no_dead_letter(message: Message) -> bool:
    return not (isinstance(message, Append) and any(map(_is_settlement, message.entries)))


def _is_settlement(entry: Entry) -> bool:
    is_state = entry.kind is EntryKind.STATE
    return is_state and any(
        isinstance(event, DeadLettered) for event in decode_events(bytes(entry.payload))
    )

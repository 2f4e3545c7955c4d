"""Histories of the queue groups of fleets that chance would seldom write."""

from penstock.broker import Broker, Message
from penstock.delivery import parse_receipt
from penstock.errors import LeaseExpired, PenstockError
from tests.simulation.fleet.scripts import PLACE, TOPIC, Play, play
from tests.simulation.referee import require

GROUP = "eaters"
# Long enough for an election and for what follows it.
_SUSPENDED_US = 8_000_000


def receive_one(play: Play, node: int) -> Message:
    """Receive one message, which stays out for long."""

    async def receive(broker: Broker) -> list[Message]:
        return await broker.queues.receive(
            TOPIC, GROUP, count_max=1, wait_ms=5_000, lease_ms=600_000
        )

    messages = play.do(node, receive)
    require(len(messages) == 1, "nothing is received")
    return messages[0]


def ack(play: Play, node: int, message: Message) -> PenstockError | None:
    """Ack a message, and return what became of that."""
    referee = play.fleet.referee
    for group in referee.groups_of[message.value or b""]:
        receipt = parse_receipt(message.receipt)
        referee.shelf.by_group[group].sent["ack"].add((GROUP, receipt.delivery, receipt.offset))
    return play.do(node, lambda broker: broker.queues.ack(TOPIC, GROUP, [message.receipt]))[0]


def receipt_outlives_its_topic() -> None:
    """Another topic has the name by then, and its first message is out with somebody else."""

    def script(play: Play) -> None:
        play.create(1, [1, 2, 3])
        play.publish(1, 1)
        former = receive_one(play, 1)
        play.delete(1)
        play.create(1, [1, 2, 3])
        play.publish(1, 1)
        message = receive_one(play, 2)
        outcome = ack(play, 3, former)
        require(isinstance(outcome, LeaseExpired), "a receipt outlives its topic", outcome)
        outcome = ack(play, 3, message)
        require(outcome is None, "a receipt is refused", outcome)

    play(script, nodes=3)


def message_is_acked_while_the_first_leader_is_suspended() -> None:
    """It wakes up, hears nobody, and is asked for messages before it can know who leads."""

    def script(play: Play) -> None:
        play.create(1, [1, 2, 3])
        play.publish(1, 1)
        ack(play, 1, receive_one(play, 1))
        play.publish(1, 1)
        first = leader(play, {1, 2, 3})
        others = {1, 2, 3} - {first}
        ways = {(first, other) for other in others} | {(other, first) for other in others}
        play.fleet.wires.cuts |= ways
        machine = play.fleet.nodes[first].machine
        machine.wakes_us = play.fleet.schedule.now_us + _SUSPENDED_US
        other = leader(play, others)
        outcome = ack(play, other, receive_one(play, other))
        require(outcome is None, "a receipt is refused", outcome)
        play.wait_until(lambda: play.fleet.schedule.now_us >= machine.wakes_us, "it is awake")
        messages = play.do(first, lambda broker: broker.queues.receive(TOPIC, GROUP, count_max=1))
        require(not messages, "a message comes back that was acked before", messages)
        play.fleet.wires.cuts -= ways

    play(script, nodes=3)


def leader(play: Play, nodes: set[int]) -> int:
    """Wait until one of these nodes leads the partition, and return it."""

    def leads(node: int) -> bool:
        broker = play.fleet.nodes[node].broker
        assert broker is not None, "no node stops"
        return any(
            partition.place == PLACE and partition.log.is_serving
            for partition in broker.cluster.replicas.partitions
        )

    play.wait_until(lambda: any(map(leads, nodes)), "the partition is led")
    return next(filter(leads, nodes))


SCRIPTS = (receipt_outlives_its_topic, message_is_acked_while_the_first_leader_is_suspended)

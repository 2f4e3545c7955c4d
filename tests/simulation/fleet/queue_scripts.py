"""Histories of the queue groups of fleets that chance would seldom write."""

from penstock.broker import Broker, Message
from penstock.delivery import parse_receipt
from penstock.errors import LeaseExpired, PenstockError
from tests.simulation.fleet.scripts import TOPIC, Play, play
from tests.simulation.referee import require

GROUP = "eaters"


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


SCRIPTS = (receipt_outlives_its_topic,)

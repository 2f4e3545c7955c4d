"""Publish ten orders and read them back: `python examples/send_and_receive.py [HOST:PORT]`."""

import json
import sys
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
TOPIC = "example-orders"
ORDERS = [{"number": number, "customer": f"customer-{number % 3}"} for number in range(10)]


def main() -> None:
    """Send, then receive."""
    publish(ORDERS)
    print(f"published {len(ORDERS)} orders")
    for order in receive(len(ORDERS)):
        print(f"received {order}")


def publish(orders: list[dict[str, object]]) -> None:
    """Return when every order is on the broker's disk, or raise."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    # An idempotent producer may send again after a lost answer without storing anything twice.
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for order in orders:
        # Orders of one customer share a key, so they share a partition and keep their order.
        key = str(order["customer"])
        producer.produce(TOPIC, json.dumps(order), key=key, on_delivery=on_delivery)
    producer.flush()
    if failures:
        raise KafkaException(failures[0])


def receive(count: int) -> list[object]:
    """Return the first messages of the topic."""
    settings = {
        "bootstrap.servers": BOOTSTRAP,
        # A group of its own begins with the first message.
        "group.id": f"example-{uuid4()}",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    orders = []
    try:
        while len(orders) < count:
            message = consumer.poll(timeout=1.0)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            orders.append(json.loads(message.value()))
    finally:
        consumer.close()
    return orders


if __name__ == "__main__":
    main()

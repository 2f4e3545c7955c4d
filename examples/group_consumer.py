"""Work through a topic as one member of a group.

`python examples/group_consumer.py TOPIC GROUP [HOST:PORT]`, in as many terminals as you like: the
partitions of the topic are shared among them. A message counts as done when its offset is
committed, which happens after the work; a member that dies in between leaves its last messages to
be done again by another one.
"""

import signal
import sys
import threading

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

COMMIT_EVERY = 100


def main() -> None:
    """Work until SIGTERM or Ctrl-C."""
    topic, group = sys.argv[1:3]
    bootstrap = sys.argv[3] if len(sys.argv) > 3 else "localhost:9092"
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            # The server assigns partitions; a member that joins pauses only those that move.
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            # Offsets are committed here, after the work, and by nobody else.
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
    )
    consumer.subscribe([topic], on_revoke=commit_before_leaving)
    try:
        work_through(consumer, stop)
    finally:
        consumer.close()


def work_through(consumer: Consumer, stop: threading.Event) -> None:
    """Do the work of each message, and commit now and then."""
    done = 0
    while not stop.is_set():
        message = consumer.poll(timeout=0.5)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        work(message)
        consumer.store_offsets(message)
        done += 1
        if done % COMMIT_EVERY == 0:
            consumer.commit(asynchronous=False)


def work(message: Message) -> None:
    """Do what a message asks for."""
    key = (message.key() or b"").decode()
    value = (message.value() or b"").decode()
    print(f"partition {message.partition()} offset {message.offset()}: {key} {value}", flush=True)


def commit_before_leaving(consumer: Consumer, _partitions: list[TopicPartition]) -> None:
    """Commit what was done before another member takes over, and before the end."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        # Nothing was done since the last commit, or the partitions are lost already.
        print(f"nothing committed: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Client processes with librdkafka, so that neither they nor the node wait for each other's GIL."""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

_SPAWN = multiprocessing.get_context("spawn")
_WAIT_S = 300
_MESSAGES_PER_CALL = 2_000
_QUEUED_BYTES_MAX = 128 * 1024 * 1024
_FETCH_MESSAGES = 10_000
STAMP_BYTES = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one client process has done, and when, on the clock that all processes share."""

    result: Any
    begin_s: float
    end_s: float
    cpu_s: float


def run_clients(jobs: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Outcome]:
    """Run each job in its own process, all at once; a job gets a `ready` function first."""
    barrier = _SPAWN.Barrier(len(jobs))
    queue = _SPAWN.Queue()
    processes = [
        _SPAWN.Process(target=_run_job, args=(number, job, arguments, barrier, queue))
        for number, (job, arguments) in enumerate(jobs)
    ]
    for process in processes:
        process.start()
    outcomes = dict(queue.get(timeout=_WAIT_S) for _ in processes)
    for process in processes:
        process.join()
    failed = [outcome for outcome in outcomes.values() if isinstance(outcome, str)]
    if failed:
        raise RuntimeError(failed[0])
    return [outcomes[number] for number in range(len(jobs))]


def _run_job(
    number: int, job: Callable[..., Any], arguments: tuple[Any, ...], barrier: Any, queue: Any
) -> None:
    begin = cpu = 0.0

    def ready() -> None:
        nonlocal begin, cpu
        barrier.wait(_WAIT_S)
        begin, cpu = time.monotonic(), time.process_time()

    try:
        result = job(ready, *arguments)
        end = time.monotonic()
        queue.put((number, Outcome(result, begin, end, time.process_time() - cpu)))
    except BaseException as error:
        queue.put((number, f"a client failed: {error!r}"))
        raise


def wall_s(outcomes: list[Outcome]) -> float:
    """Return the time from the first begin to the last end."""
    return max(o.end_s for o in outcomes) - min(o.begin_s for o in outcomes)


def client_cpu_pct(outcomes: list[Outcome]) -> float:
    """Return the share of one core that all clients together used."""
    return 100 * sum(o.cpu_s for o in outcomes) / wall_s(outcomes)


def produce_for(
    ready: Callable[[], None], bootstrap: str, topic: str, value_bytes: int, seconds: float
) -> int:
    """Publish as fast as the client can; return how many messages it handed over."""
    producer = _producer(bootstrap, {"linger.ms": 5})
    messages = [{"value": b"x" * value_bytes}] * _MESSAGES_PER_CALL
    queued_max = _QUEUED_BYTES_MAX // value_bytes
    producer.list_topics(topic, timeout=30)
    ready()
    sent = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if len(producer) < queued_max:
            sent += producer.produce_batch(topic, messages, partition=0)
        else:
            producer.poll(0.001)
    if producer.flush(60):
        raise RuntimeError("some messages were not acknowledged")
    return sent


def consume_count(
    ready: Callable[[], None], bootstrap: str, topic: str, count: int, settings: dict[str, Any]
) -> int:
    """Read `count` messages from the beginning."""
    consumer = _consumer(bootstrap, topic, settings)
    ready()
    got = 0
    while got < count:
        messages = consumer.consume(_FETCH_MESSAGES, 10)
        if not messages:
            raise RuntimeError(f"only {got} of {count} messages came")
        got += len(messages)
    consumer.close()
    return got


def send_steadily(
    ready: Callable[[], None], bootstrap: str, topic: str, rate: int, count: int
) -> int:
    """Publish `count` messages that carry their time, evenly spaced; return the acknowledged."""
    producer = _producer(bootstrap, {"linger.ms": 0})
    producer.list_topics(topic, timeout=30)
    acked = 0

    def delivered(error: Any, _: Any) -> None:
        nonlocal acked
        if error:
            raise RuntimeError(str(error))
        acked += 1

    ready()
    begin = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begin + number / rate - time.monotonic()))
        stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "big")
        value = stamp + bytes(100 - STAMP_BYTES)
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        producer.poll(0)
    producer.flush(30)
    return acked


def receive_stamped(
    ready: Callable[[], None], bootstrap: str, topic: str, count: int
) -> list[float]:
    """Return the age in seconds of each message at its arrival."""
    consumer = _consumer(bootstrap, topic)
    consumer.poll(0.5)
    ready()
    ages: list[float] = []
    while len(ages) < count:
        message = consumer.poll(10)
        if message is None:
            raise RuntimeError(f"only {len(ages)} of {count} messages came")
        sent_ns = int.from_bytes((message.value() or b"")[:STAMP_BYTES], "big")
        ages.append((time.monotonic_ns() - sent_ns) / 1e9)
    consumer.close()
    return ages


def stored_count(bootstrap: str, topic: str) -> int:
    """Return how many records partition 0 holds: the committed ones."""
    consumer = _consumer(bootstrap, topic)
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    return int(high - low)


def _producer(bootstrap: str, settings: dict[str, Any]) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": 5_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            **settings,
        }
    )


def _consumer(bootstrap: str, topic: str, settings: dict[str, Any] | None = None) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **(settings or {}),
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer

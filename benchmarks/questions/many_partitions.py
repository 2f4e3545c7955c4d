"""How many 1 KiB publishes per second when they go to 200 partitions at once, each synced?"""

import time
from collections.abc import Iterator

from benchmarks.answers import RATE, Measurement
from benchmarks.wire import WireClient, check_produced, produce_request
from benchmarks.workbench import Workbench, create_topic, usage_of

_TOPIC = "many"
_PARTITIONS = 200


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Publish one record into every partition, wait for all answers, and begin again."""
    requests = [
        produce_request(_TOPIC, partition, records=1, value_bytes=1024)
        for partition in range(_PARTITIONS)
    ]
    with bench.node() as node, WireClient(node.kafka_port) as client:
        create_topic(node, _TOPIC, partitions=_PARTITIONS)
        _round(client, requests)
        rounds = 0
        with usage_of(node.pid) as usage:
            end = time.perf_counter() + bench.seconds(5)
            while time.perf_counter() < end:
                _round(client, requests)
                rounds += 1
    acked = rounds * _PARTITIONS
    figures = {
        RATE: acked / usage.wall_s,
        "round_ms": 1000 * usage.wall_s / rounds,
        "node_cpu_us_per_publish": 1e6 * usage.cpu_s / acked,
    }
    yield Measurement(f"{_PARTITIONS} partitions", figures)


def _round(client: WireClient, requests: list[bytes]) -> None:
    client.send(b"".join(requests))
    for _ in requests:
        check_produced(_TOPIC, client.receive())

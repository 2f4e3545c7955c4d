"""How fast does a librdkafka consumer read a partition, and what does that cost the node?

With its default settings librdkafka pauses for a second whenever 100,000 messages wait to be taken
from it: with small records that is what limits it, whatever the broker does. So the same is asked
of a client that does not pause.
"""

from collections.abc import Iterator
from typing import Any

from benchmarks.answers import RATE, Measurement, Target
from benchmarks.clients import client_cpu_pct, consume_count, run_clients, wall_s
from benchmarks.wire import WireClient, check_produced, produce_request
from benchmarks.workbench import Workbench, create_topic, usage_of
from tests.processes import NodeProcess

_TOPIC = "consumer"
_RECORDS_PER_BATCH = 1_000
_WITHOUT_PAUSE = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Read everything from the beginning."""
    for value_bytes, count in ((100, 5_000_000), (1024, 1_000_000)):
        count = bench.count(count)
        with bench.node() as node:
            create_topic(node, _TOPIC)
            _fill(node.kafka_port, value_bytes, count)
            yield _read(node, f"{value_bytes} B", value_bytes, count, {})
            name = f"{value_bytes} B, client that does not pause"
            yield _read(node, name, value_bytes, count, _WITHOUT_PAUSE)


def _read(
    node: NodeProcess, name: str, value_bytes: int, count: int, settings: dict[str, Any]
) -> Measurement:
    with usage_of(node.pid) as usage:
        outcomes = run_clients([(consume_count, (node.bootstrap, _TOPIC, count, settings))])
    wall = wall_s(outcomes)
    figures = {
        RATE: count / wall,
        "mb_per_s": count * value_bytes / wall / 1e6,
        "node_cpu_pct": 100 * usage.cpu_s / wall,
        "client_cpu_pct": client_cpu_pct(outcomes),
    }
    return Measurement(name, figures, Target("node_cpu_pct", most=30))


def _fill(port: int, value_bytes: int, count: int) -> None:
    request = produce_request(_TOPIC, 0, records=_RECORDS_PER_BATCH, value_bytes=value_bytes)
    with WireClient(port) as client:
        for _ in range(count // _RECORDS_PER_BATCH):
            client.send(request)
            check_produced(_TOPIC, client.receive())

"""How many 100 B messages per second are published over HTTP, in batches and one by one?"""

from collections.abc import Iterator

from benchmarks.answers import RATE, Measurement, Target
from benchmarks.clients import client_cpu_pct, run_clients, wall_s
from benchmarks.http_wire import post, publish_batch_request, publish_for
from benchmarks.wire import percentile
from benchmarks.workbench import Workbench, create_topic, usage_of

_TOPIC = "messages"
_BATCH = 1_000
_VALUE_BYTES = 100


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Send each request after the answer to the one before; every message is synced."""
    batch = publish_batch_request(_TOPIC, messages=_BATCH, value_bytes=_VALUE_BYTES)
    single = post(f"/v1/topics/{_TOPIC}/publish", {"value": "x" * _VALUE_BYTES})
    yield _measure(bench, "batches of 1,000", batch, _BATCH, 1, Target(RATE, least=200_000))
    yield _measure(bench, "one by one, 16 connections", single, 1, 16, Target(RATE, least=4_000))


def _measure(
    bench: Workbench, case: str, request: bytes, messages: int, connections: int, target: Target
) -> Measurement:
    with bench.node() as node:
        create_topic(node, _TOPIC)
        job = (publish_for, (node.http_port, request, bench.seconds(4)))
        with usage_of(node.pid) as usage:
            outcomes = run_clients([job] * connections)
    latencies = [latency for outcome in outcomes for latency in outcome.result]
    acked = len(latencies) * messages
    figures = {
        RATE: acked / wall_s(outcomes),
        "p50_ms": percentile(latencies, 0.5) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
        "node_cpu_us_per_message": 1e6 * usage.cpu_s / acked,
        "client_cpu_pct": client_cpu_pct(outcomes),
    }
    return Measurement(case, figures, target)

"""How long does a 100 B message take from producer to consumer at a steady 500 messages/s?

Both are librdkafka clients in processes of their own; every message is synced before it is seen.
"""

from collections.abc import Iterator

from benchmarks.answers import RATE, Measurement
from benchmarks.clients import receive_stamped, run_clients, send_steadily, wall_s
from benchmarks.wire import percentile
from benchmarks.workbench import Workbench, create_topic, usage_of

_TOPIC = "steady"
_MESSAGES_PER_S = 500


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Stamp each message when it is sent and take its age when it arrives."""
    count = int(_MESSAGES_PER_S * bench.seconds(10))
    with bench.node() as node:
        create_topic(node, _TOPIC)
        with usage_of(node.pid) as usage:
            received, sent = run_clients(
                [
                    (receive_stamped, (node.bootstrap, _TOPIC, count)),
                    (send_steadily, (node.bootstrap, _TOPIC, _MESSAGES_PER_S, count)),
                ]
            )
    if sent.result != count:
        raise RuntimeError(f"{sent.result} of {count} messages were acknowledged")
    figures = {
        RATE: count / wall_s([sent]),
        "p50_ms": 1000 * percentile(received.result, 0.5),
        "p99_ms": 1000 * percentile(received.result, 0.99),
        "p999_ms": 1000 * percentile(received.result, 0.999),
        "node_cpu_us_per_message": 1e6 * usage.cpu_s / count,
    }
    yield Measurement("100 B", figures)

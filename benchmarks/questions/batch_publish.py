"""How many 100 B records per second does one connection publish in batches of 1,000, in turn?"""

from collections.abc import Iterator

from benchmarks.answers import RATE, Measurement, Target
from benchmarks.wire import WireClient, produce_request, publish_in_turn
from benchmarks.workbench import Workbench, create_topic, usage_of

_TOPIC = "batches"
_RECORDS = 1_000


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Send each batch after the answer to the one before; every batch is synced."""
    for value_bytes, target in ((100, Target(RATE, least=300_000)), (1024, None)):
        request = produce_request(_TOPIC, 0, records=_RECORDS, value_bytes=value_bytes)
        with bench.node() as node, WireClient(node.kafka_port) as client:
            create_topic(node, _TOPIC)
            publish_in_turn(client, _TOPIC, request, bench.seconds(0.5))
            with usage_of(node.pid) as usage:
                loop = publish_in_turn(client, _TOPIC, request, bench.seconds(4))
        figures = {
            RATE: loop.per_s * _RECORDS,
            "batches_per_s": loop.per_s,
            "p50_ms": loop.percentile_ms(0.5),
            "p99_ms": loop.percentile_ms(0.99),
            "node_cpu_pct": usage.cpu_pct,
        }
        yield Measurement(f"1,000 x {value_bytes} B", figures, target)

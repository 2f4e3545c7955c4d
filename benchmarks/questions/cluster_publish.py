"""How many 1 KiB records per second does one client publish to three nodes, one in flight?

All three run on this machine and share its disk, and each publish is on disk on two of them before
it is acknowledged. The disk's own rate is measured in slices between.
"""

import statistics
from collections.abc import Iterator

from benchmarks.answers import DISK_RATE, RATE, Measurement, Target
from benchmarks.machine import disk_syncs_per_s
from benchmarks.wire import Loop, WireClient, produce_request, publish_in_turn
from benchmarks.workbench import Workbench, create_topic, leader_of

_TOPIC = "replicated"
_SLICES = 6
_SLICE_S = 1.0


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Publish in turn over one connection to the leader."""
    request = produce_request(_TOPIC, 0, records=1, value_bytes=1024)
    slice_s = bench.seconds(_SLICE_S)
    loops: list[Loop] = []
    disk: list[float] = []
    with bench.cluster(3) as cluster:
        create_topic(cluster, _TOPIC, replicas=3)
        with WireClient(cluster[leader_of(cluster, _TOPIC)].kafka_port) as client:
            publish_in_turn(client, _TOPIC, request, slice_s)
            for _ in range(_SLICES):
                disk.append(disk_syncs_per_s(bench.directory, slice_s / 2))
                loops.append(publish_in_turn(client, _TOPIC, request, slice_s))
    together = Loop([latency for loop in loops for latency in loop.latencies_s])
    figures = {
        RATE: statistics.median(loop.per_s for loop in loops),
        DISK_RATE: statistics.median(disk),
        "p50_ms": together.percentile_ms(0.5),
        "p99_ms": together.percentile_ms(0.99),
    }
    yield Measurement("1 KiB, three nodes", figures, Target("per_disk_sync", least=0.35))

"""How many 1 KiB records per second does one client publish, one in flight, each synced?

The disk's own rate is measured in slices between those of the node, because it changes within
seconds on a shared machine, and so is that of a server that does nothing but write, sync and
answer: no node in Python can be quicker than that one.
"""

import statistics
from collections.abc import Iterator

from benchmarks.answers import RATE, Measurement, Target
from benchmarks.bare_server import bare_server
from benchmarks.machine import disk_syncs_per_s
from benchmarks.wire import (
    Loop,
    WireClient,
    figures_beside,
    produce_request,
    publish_in_turn,
)
from benchmarks.workbench import Workbench, create_topic, usage_of

_TOPIC = "single"
_SLICES = 6
_SLICE_S = 1.0


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Publish in turn over one connection."""
    request = produce_request(_TOPIC, 0, records=1, value_bytes=1024)
    slice_s = bench.seconds(_SLICE_S)
    loops: list[Loop] = []
    bare: list[Loop] = []
    disk: list[float] = []
    cpu_s = 0.0
    with (
        bench.node() as node,
        bare_server(bench.directory / "bare", _TOPIC) as bare_port,
        WireClient(node.kafka_port) as client,
        WireClient(bare_port) as bare_client,
    ):
        create_topic(node, _TOPIC)
        publish_in_turn(client, _TOPIC, request, slice_s)
        for _ in range(_SLICES):
            disk.append(disk_syncs_per_s(bench.directory, slice_s / 2))
            bare.append(publish_in_turn(bare_client, _TOPIC, request, slice_s / 2))
            with usage_of(node.pid) as usage:
                loops.append(publish_in_turn(client, _TOPIC, request, slice_s))
            cpu_s += usage.cpu_s
    figures = figures_beside(loops, disk)
    figures["node_cpu_us_per_publish"] = 1e6 * cpu_s / sum(len(loop.latencies_s) for loop in loops)
    figures["per_bare_publish"] = figures[RATE] / statistics.median(loop.per_s for loop in bare)
    yield Measurement("1 KiB", figures, Target("per_disk_sync", least=0.7))
    yield Measurement(
        "1 KiB, a server that only writes, syncs and answers", figures_beside(bare, disk)
    )

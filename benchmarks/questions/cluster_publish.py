"""How many 1 KiB records per second does one client publish to three nodes, one in flight?

All three run on this machine and share its disk, and each publish is on disk on two of them before
it is acknowledged. The disk's own rate is measured in slices between, and so are those of one node
alone and of three servers that do nothing but pass on, write, sync and answer.

The share of the disk's rate is also told with that rate counted up to 3,000 syncs per second:
behind a quicker disk a publish waits for processors, of which four processes share what there is.
"""

import statistics
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.answers import DISK_RATE, RATE, Measurement, Target
from benchmarks.bare_server import bare_server
from benchmarks.machine import disk_syncs_per_s
from benchmarks.wire import (
    Loop,
    WireClient,
    figures_beside,
    produce_request,
    publish_in_turn,
)
from benchmarks.workbench import Workbench, create_topic, leader_of

_TOPIC = "replicated"
_DISK_COUNTED_MAX = 3_000
_COUNTED = "per_counted_sync"
_SLICES = 6
_SLICE_S = 1.0


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Publish in turn over one connection to the leader."""
    request = produce_request(_TOPIC, 0, records=1, value_bytes=1024)
    slice_s = bench.seconds(_SLICE_S)
    loops: list[Loop] = []
    single: list[Loop] = []
    bare: list[Loop] = []
    disk: list[float] = []
    with ExitStack() as stack:
        cluster = stack.enter_context(bench.cluster(3))
        create_topic(cluster, _TOPIC, replicas=3)
        leader = cluster[leader_of(cluster, _TOPIC)]
        client = stack.enter_context(WireClient(leader.kafka_port))
        node = stack.enter_context(bench.node())
        create_topic(node, _TOPIC)
        single_client = stack.enter_context(WireClient(node.kafka_port))
        bare_client = stack.enter_context(WireClient(_bare_leader(stack, bench)))
        publish_in_turn(client, _TOPIC, request, slice_s)
        publish_in_turn(single_client, _TOPIC, request, slice_s)
        for _ in range(_SLICES):
            disk.append(disk_syncs_per_s(bench.directory, slice_s / 2))
            bare.append(publish_in_turn(bare_client, _TOPIC, request, slice_s / 2))
            single.append(publish_in_turn(single_client, _TOPIC, request, slice_s / 2))
            loops.append(publish_in_turn(client, _TOPIC, request, slice_s))
    figures = figures_beside(loops, disk)
    for name, others in (("per_bare_publish", bare), ("per_single_node", single)):
        figures[name] = figures[RATE] / statistics.median(loop.per_s for loop in others)
    figures[_COUNTED] = figures[RATE] / min(figures[DISK_RATE], _DISK_COUNTED_MAX)
    yield Measurement("1 KiB, three nodes", figures, Target("per_disk_sync", least=0.35))
    yield Measurement(
        "1 KiB, three servers that only pass on, write, sync and answer", figures_beside(bare, disk)
    )


def _bare_leader(stack: ExitStack, bench: Workbench) -> int:
    followers = [
        stack.enter_context(bare_server(bench.directory / f"bare-{number}", _TOPIC))
        for number in (1, 2)
    ]
    return stack.enter_context(bare_server(bench.directory / "bare-0", _TOPIC, followers))

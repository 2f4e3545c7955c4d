"""How many 1 KiB records per second does one client publish to three nodes, one in flight?

All three run on this machine and share its disk, and each publish is on disk on two of them before
it is acknowledged. The disk's own rate is measured in slices between, and so are those of one node
alone and of three servers that do nothing but pass on, write, sync and answer.

The quicker the disk, the more a publish waits for processors, of which four processes share what
there is. So the question is asked with the disk as it is and with syncs that take as long as those
of slower disks; the target is asked of each.
"""

import statistics
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.answers import RATE, Measurement, Target
from benchmarks.bare_server import bare_server
from benchmarks.machine import disk_syncs_per_s
from benchmarks.slow_disk import slow_sync, under_slow_disk
from benchmarks.wire import (
    Loop,
    WireClient,
    figures_beside,
    produce_request,
    publish_in_turn,
)
from benchmarks.workbench import Workbench, create_topic, leader_of

_TOPIC = "replicated"
_TARGET = Target("per_disk_sync", least=0.35)
# Disks of some 1,000, 2,000 and 4,000 syncs per second, and the machine's own.
_SYNCS_US = (1_000, 500, 250, 0)
_SLICES = 6
_SLICE_S = 1.0


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Publish in turn over one connection to the leader."""
    for sync_us in _SYNCS_US:
        yield from _measure(bench, sync_us)


def _measure(bench: Workbench, sync_us: int) -> Iterator[Measurement]:
    request = produce_request(_TOPIC, 0, records=1, value_bytes=1024)
    slice_s = bench.seconds(_SLICE_S)
    program = under_slow_disk(sync_us)
    loops: list[Loop] = []
    single: list[Loop] = []
    bare: list[Loop] = []
    disk: list[float] = []
    with ExitStack() as stack:
        cluster = stack.enter_context(bench.cluster(3, program=program))
        create_topic(cluster, _TOPIC, replicas=3)
        leader = cluster[leader_of(cluster, _TOPIC)]
        client = stack.enter_context(WireClient(leader.kafka_port))
        node = stack.enter_context(bench.node(program=program))
        create_topic(node, _TOPIC)
        single_client = stack.enter_context(WireClient(node.kafka_port))
        bare_client = stack.enter_context(WireClient(_bare_leader(stack, bench, sync_us)))
        publish_in_turn(client, _TOPIC, request, slice_s)
        publish_in_turn(single_client, _TOPIC, request, slice_s)
        for _ in range(_SLICES):
            disk.append(disk_syncs_per_s(bench.directory, slice_s / 2, slow_sync(sync_us)))
            bare.append(publish_in_turn(bare_client, _TOPIC, request, slice_s / 2))
            single.append(publish_in_turn(single_client, _TOPIC, request, slice_s / 2))
            loops.append(publish_in_turn(client, _TOPIC, request, slice_s))
    figures = figures_beside(loops, disk)
    for name, others in (("per_bare_publish", bare), ("per_single_node", single)):
        figures[name] = figures[RATE] / statistics.median(loop.per_s for loop in others)
    sync = f", syncs of {sync_us} us" if sync_us else ""
    yield Measurement(f"1 KiB, three nodes{sync}", figures, _TARGET)
    yield Measurement(
        f"1 KiB, three servers that only pass on, write, sync and answer{sync}",
        figures_beside(bare, disk),
    )


def _bare_leader(stack: ExitStack, bench: Workbench, sync_us: int) -> int:
    program = under_slow_disk(sync_us)
    followers = [
        stack.enter_context(
            bare_server(bench.directory / f"bare-{sync_us}-{number}", _TOPIC, program=program)
        )
        for number in (1, 2)
    ]
    leader = bench.directory / f"bare-{sync_us}-0"
    return stack.enter_context(bare_server(leader, _TOPIC, followers, program))

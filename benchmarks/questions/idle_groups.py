"""What do 1,000 idle replicated partitions cost each of three nodes?"""

import time
from collections.abc import Iterator

from benchmarks.answers import Measurement, Target
from benchmarks.workbench import Workbench, create_topic, memory_mb, usage_of

_GROUPS = 1_000
_SETTLE_S = 15.0
_WINDOW_S = 10.0


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Look at one of the nodes before there are partitions, and when they are left alone."""
    groups = bench.count(_GROUPS)
    with bench.cluster(3) as cluster:
        time.sleep(bench.seconds(_SETTLE_S))
        with usage_of(cluster[1].pid) as empty:
            time.sleep(bench.seconds(_WINDOW_S))
        create_topic(cluster, "idle", partitions=groups, replicas=3)
        time.sleep(bench.seconds(_SETTLE_S))
        with usage_of(cluster[1].pid) as usage:
            time.sleep(bench.seconds(_WINDOW_S))
        figures = {
            "empty_node_cpu_pct": empty.cpu_pct,
            "node_cpu_pct": usage.cpu_pct,
            "node_cpu_pct_per_1000": (usage.cpu_pct - empty.cpu_pct) * 1_000 / groups,
            "node_memory_mb": memory_mb(cluster[1].pid),
        }
    yield Measurement(f"{groups} groups", figures, Target("node_cpu_pct_per_1000", most=1.0))

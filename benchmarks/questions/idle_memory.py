"""How much memory and CPU does an empty node take?"""

import time
from collections.abc import Iterator

from benchmarks.answers import Measurement, Target
from benchmarks.workbench import Workbench, cpu_s, memory_mb, usage_of


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Start a node that has formed its cluster before, and leave it alone."""
    with bench.node() as node:
        node.stop()
        begin = time.perf_counter()
        node.start()
        start_s = time.perf_counter() - begin
        start_cpu_s = cpu_s(node.pid)
        with usage_of(node.pid) as usage:
            time.sleep(bench.seconds(6))
        figures = {
            "node_mb": memory_mb(node.pid),
            "node_cpu_pct": usage.cpu_pct,
            "start_s": start_s,
            "start_cpu_s": start_cpu_s,
        }
    yield Measurement("empty node", figures, Target("node_mb", most=120))

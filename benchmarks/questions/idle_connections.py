"""What do 1,000 connections cost a node while none of them asks for anything?"""

import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.answers import Measurement
from benchmarks.wire import WireClient, api_versions_request
from benchmarks.workbench import Workbench, memory_mb, usage_of

_CONNECTIONS = 1_000


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Compare the node before and after the connections are made."""
    window_s = bench.seconds(8)
    with bench.node() as node, ExitStack() as connections:
        with usage_of(node.pid) as alone:
            time.sleep(window_s)
        memory_before_mb = memory_mb(node.pid)
        with usage_of(node.pid) as greeting:
            for _ in range(_CONNECTIONS):
                client = connections.enter_context(WireClient(node.kafka_port))
                client.send(api_versions_request())
                client.receive()
        with usage_of(node.pid) as idle:
            time.sleep(window_s)
        memory_after_mb = memory_mb(node.pid)
    figures = {
        "kb_per_connection": 1000 * (memory_after_mb - memory_before_mb) / _CONNECTIONS,
        "node_mb": memory_after_mb,
        "node_cpu_pct": idle.cpu_pct,
        "node_cpu_pct_without": alone.cpu_pct,
        "cpu_us_per_greeting": 1e6 * greeting.cpu_s / _CONNECTIONS,
    }
    yield Measurement("1,000 connections", figures)

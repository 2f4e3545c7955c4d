"""How many records per second do librdkafka producers publish into one partition?

Once with every acknowledgement after fdatasync, once from the page cache (`durability=os`).
"""

from collections.abc import Iterator

from benchmarks.answers import RATE, Measurement, Target
from benchmarks.clients import client_cpu_pct, produce_for, run_clients, stored_count, wall_s
from benchmarks.workbench import Workbench, create_topic, usage_of

_CLIENTS = 2


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Let several client processes publish at once."""
    for value_bytes, least in ((100, 1_000_000), (1024, None)):
        from_cache = _publish(bench, value_bytes, "os")
        synced = _publish(bench, value_bytes, "sync")
        synced["to_os"] = synced[RATE] / from_cache[RATE]
        size = f"{value_bytes} B"
        yield Measurement(f"{size}, os", from_cache)
        yield Measurement(f"{size}, synced", synced, Target(RATE, least=least) if least else None)
        yield Measurement(
            f"{size}, synced to os", {"to_os": synced["to_os"]}, Target("to_os", least=0.8)
        )


def _publish(bench: Workbench, value_bytes: int, durability: str) -> dict[str, float]:
    topic = f"producer-{durability}"
    with bench.node() as node:
        create_topic(node, topic, settings={"durability": durability})
        arguments = (node.bootstrap, topic, value_bytes, bench.seconds(5))
        with usage_of(node.pid) as usage:
            outcomes = run_clients([(produce_for, arguments)] * _CLIENTS)
        stored = stored_count(node.bootstrap, topic)
    sent = sum(outcome.result for outcome in outcomes)
    if stored != sent:
        raise RuntimeError(f"{sent} messages were acknowledged, {stored} are stored")
    wall = wall_s(outcomes)
    return {
        RATE: stored / wall,
        "mb_per_s": stored * value_bytes / wall / 1e6,
        # The window of the node includes the start of the clients, when it idles.
        "node_cpu_pct": 100 * usage.cpu_s / wall,
        "client_cpu_pct": client_cpu_pct(outcomes),
    }

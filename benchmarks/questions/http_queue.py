"""How many 100 B messages per second do two consumers of a group receive and ack over HTTP?"""

from collections.abc import Callable, Iterator

from benchmarks.answers import RATE, Measurement, Target
from benchmarks.clients import client_cpu_pct, run_clients, wall_s
from benchmarks.http_wire import HttpWire, consume_all, exchange_all, publish_batch_request
from benchmarks.workbench import Workbench, create_topic, usage_of

_TOPIC = "work"
_BATCH = 1_000
_VALUE_BYTES = 100
_CONSUMERS = 2
# A consumer waits so long for more before it ends.
_LAST_WAIT_S = 1.0


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Every message is received once, and acknowledged durably before the next ones come."""
    yield _measure(bench, consume_all, 100, 400_000, Target(RATE, least=70_000))
    yield _measure(bench, exchange_all, 100, 400_000, Target(RATE, least=70_000))
    yield _measure(bench, consume_all, 10, 100_000)
    yield _measure(bench, exchange_all, 10, 100_000, Target(RATE, least=30_000))


def _measure(
    bench: Workbench,
    consume: Callable[[Callable[[], None], int, str, int], int],
    count_max: int,
    messages: int,
    target: Target | None = None,
) -> Measurement:
    messages = bench.count(messages)
    group = f"/v1/topics/{_TOPIC}/groups/bench"
    with bench.node() as node:
        create_topic(node, _TOPIC)
        _fill(node.http_port, messages)
        job = (consume, (node.http_port, group, count_max))
        with usage_of(node.pid) as usage:
            outcomes = run_clients([job] * _CONSUMERS)
    settled = sum(outcome.result for outcome in outcomes)
    if settled != messages:
        raise RuntimeError(f"{settled} messages were acknowledged, not {messages}")
    figures = {
        RATE: settled / (wall_s(outcomes) - _LAST_WAIT_S),
        "node_cpu_us_per_message": 1e6 * usage.cpu_s / settled,
        "client_cpu_pct": client_cpu_pct(outcomes),
    }
    way = "ack them" if consume is consume_all else "ack with the next receive"
    return Measurement(f"receive {count_max}, {way}, two consumers", figures, target)


def _fill(port: int, messages: int) -> None:
    request = publish_batch_request(_TOPIC, messages=_BATCH, value_bytes=_VALUE_BYTES)
    with HttpWire(port) as wire:
        for _ in range(messages // _BATCH):
            wire.exchange(request)

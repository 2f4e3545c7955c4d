"""What do messages that are out or dead cost: the next ones in time, the node in memory?"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from benchmarks.answers import Measurement, Target
from benchmarks.http_wire import HttpWire, framed, post, publish_batch_request, receipts_of
from benchmarks.workbench import Workbench, create_topic, memory_mb, usage_of
from tests.processes import NodeProcess

_BEHIND = 100_000
_ROUNDS = 1_600
_TURNS = 8
_UNSETTLED = 1_000_000
_BATCH = 1_000
_PORTION = 100
_LEASE = "2h"
# All of them may be out at once, with one consumer.
_SETTINGS = {
    "delivery.in.flight.max": "1000000",
    "delivery.consumer.in.flight.max": "1000000",
}


@dataclass(slots=True)
class _Trips:
    """Messages that went through a topic one by one, and what that cost the node."""

    waits_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Fresh messages go through two topics in turns: one that has a backlog, one that has none."""
    for case in ("in flight", "dead"):
        yield _measure_delay(bench, case, bench.count(_BEHIND))
    yield _measure_memory(bench, bench.count(_UNSETTLED))


def _measure_delay(bench: Workbench, case: str, count: int) -> Measurement:
    with bench.node() as node, HttpWire(node.http_port) as wire:
        for topic in ("free", "behind"):
            create_topic(node, topic, settings=_SETTINGS)
        _fill(wire, "behind", count)
        if case == "in flight":
            _receive_all(wire, "behind", count)
        else:
            _reject_all(wire, "behind", count)
        free, behind = _take_turns(node, wire, bench.count(_ROUNDS))
    figures = {
        "free_p50_ms": 1000 * median(free.waits_s),
        "p50_ms": 1000 * median(behind.waits_s),
        "free_cpu_us": 1e6 * free.cpu_s / len(free.waits_s),
        "cpu_us": 1e6 * behind.cpu_s / len(behind.waits_s),
        "times_the_cpu": behind.cpu_s / free.cpu_s,
    }
    return Measurement(f"{count:,} {case}", figures, Target("times_the_cpu", most=1.1))


def _take_turns(node: NodeProcess, wire: HttpWire, rounds: int) -> tuple[_Trips, _Trips]:
    """Send fresh messages through both topics; other work on the machine meets both alike."""
    trips = {topic: _Trips() for topic in ("free", "behind")}
    for topic in trips:
        _round_trip(wire, topic)
    for turn in range(_TURNS):
        for topic in sorted(trips, reverse=bool(turn % 2)):
            with usage_of(node.pid) as usage:
                waits_s = [_round_trip(wire, topic) for _ in range(rounds // _TURNS)]
            trips[topic].waits_s += waits_s
            trips[topic].cpu_s += usage.cpu_s
    return trips["free"], trips["behind"]


def _measure_memory(bench: Workbench, count: int) -> Measurement:
    with bench.node() as node, HttpWire(node.http_port) as wire:
        create_topic(node, "behind", settings=_SETTINGS)
        _fill(wire, "behind", count)
        _receive(wire, "behind", _PORTION)
        before_mb = memory_mb(node.pid)
        _receive_all(wire, "behind", count - _PORTION)
        grown_mb = memory_mb(node.pid) - before_mb
    figures = {"grown_mb": grown_mb, "before_mb": before_mb}
    return Measurement(f"{count:,} out, by hundreds", figures, Target("grown_mb", most=50))


def _fill(wire: HttpWire, topic: str, count: int) -> None:
    request = publish_batch_request(topic, messages=_BATCH, value_bytes=100)
    for _ in range(count // _BATCH):
        wire.exchange(request)


def _receive(wire: HttpWire, topic: str, count: int) -> list[bytes]:
    body = {"max": count, "lease": _LEASE}
    return receipts_of(wire.exchange(post(f"/v1/topics/{topic}/groups/bench/receive", body)))


def _receive_all(wire: HttpWire, topic: str, count: int) -> None:
    for _ in range(count // _PORTION):
        if len(_receive(wire, topic, _PORTION)) < _PORTION:
            raise RuntimeError("some messages did not come")


def _reject_all(wire: HttpWire, topic: str, count: int) -> None:
    for _ in range(count // _BATCH):
        receipts = b'","'.join(_receive(wire, topic, _BATCH))
        wire.exchange(
            framed(f"/v1/topics/{topic}/groups/bench/reject", b'{"receipts":["%s"]}' % receipts)
        )
    while b'"dying":0' not in wire.exchange(_get(f"/v1/topics/{topic}/groups/bench")):
        time.sleep(0.1)


def _round_trip(wire: HttpWire, topic: str) -> float:
    """Publish a message, receive it and ack it; return how long that took."""
    group = f"/v1/topics/{topic}/groups/bench"
    begin = time.perf_counter()
    wire.exchange(post(f"/v1/topics/{topic}/publish", {"value": "fresh"}))
    (receipt,) = receipts_of(wire.exchange(post(f"{group}/receive", {"max": 1, "wait": 10})))
    wire.exchange(framed(f"{group}/ack", b'{"receipts":["%s"]}' % receipt))
    return time.perf_counter() - begin


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode()

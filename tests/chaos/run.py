"""One run: start the cluster, start the clients, break things, stop, compare."""

from __future__ import annotations

import time
from array import array
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition

from tests.chaos.checker import Findings, check, check_replicas
from tests.chaos.faults import Faults
from tests.chaos.history import NOT_READ, History, Place, decode_value
from tests.chaos.readers import (
    GROUPS,
    Follower,
    Member,
    Reader,
    Visitor,
    Watcher,
    new_consumer,
)
from tests.chaos.report import Plan, Report, sentences
from tests.chaos.workers import SETTINGS, Ledger, Worker, unsettled_in
from tests.chaos.writers import LOADS, Assignment, Writer
from tests.cluster_views import new_replicated_topic, stored_bytes, up_to_offset
from tests.links import LinkedCluster

_TOPICS = {"orders": 3, "payments": 3}
_QUEUES = ("payments",)
_WARM_UP_S = 3.0
_FINISH_DEADLINE_S = 120.0
_READ_DEADLINE_S = 120.0
_POLL_S = 0.5


def run_chaos(directory: Path, plan: Plan) -> Report:
    """Run the plan in an empty directory."""
    history = History()
    ledger = Ledger(history)
    with LinkedCluster(directory, plan.nodes) as cluster:
        places = [
            Place(topic, partition)
            for topic, partitions in _TOPICS.items()
            for partition in range(partitions)
        ]
        for topic, partitions in _TOPICS.items():
            settings = SETTINGS if topic in _QUEUES else {}
            new_replicated_topic(cluster, topic, partitions, **settings)
        faults = Faults(cluster, places, history, plan.seed)
        workers = _workers(cluster, places, ledger, history)
        for worker in workers:
            worker.start()
        _load_and_break(cluster, places, history, faults, plan)
        faults.settle()
        final = {place: _read_all(cluster, place) for place in places}
        _drain(cluster, workers, ledger, history, final)
        findings = check(history, final)
        _compare_replicas(cluster, final, findings)
        for node_id, node in cluster.nodes.items():
            findings.violations += sentences(node.log_lines(), node_id)
    return Report(plan, dict(faults.counts), findings, history, ledger)


def _load_and_break(
    cluster: LinkedCluster, places: list[Place], history: History, faults: Faults, plan: Plan
) -> None:
    load = LOADS[plan.load]
    writers = [
        Writer(cluster.bootstrap, Assignment(number, load, places, history))
        for number in range(len(load.kinds))
    ]
    readers = _readers(cluster.bootstrap, places, history, plan.seed)
    for client in (*writers, *readers):
        client.start()
    try:
        time.sleep(_WARM_UP_S)
        faults.run(plan.seconds)
    finally:
        faults.undo_all()
        for writer in writers:
            writer.stop()
        for writer in writers:
            if left := writer.finish(_FINISH_DEADLINE_S):
                history.violate(f"{left} records are not acknowledged although all nodes are well")
        for reader in readers:
            reader.stop()
        for reader in readers:
            reader.join(_FINISH_DEADLINE_S)


def _readers(bootstrap: str, places: list[Place], history: History, seed: int) -> list[Reader]:
    return [
        Follower(bootstrap, places, history, "follower"),
        Visitor(bootstrap, places, history, "visitor", seed),
        *(
            Watcher(bootstrap, places, history, f"watcher of {group.name}", group.name)
            for group in GROUPS
        ),
        *(
            Member(bootstrap, places, history, group, seed + number)
            for group in GROUPS
            for number in (1, 2)
        ),
    ]


def _workers(
    cluster: LinkedCluster, places: list[Place], ledger: Ledger, history: History
) -> list[Worker]:
    urls = [node.http_url for node in cluster.nodes.values()]
    queues = [place for place in places if place.topic in _QUEUES]
    return [Worker(urls, queues, ledger, history, name) for name in ("worker 1", "worker 2")]


def _drain(
    cluster: LinkedCluster,
    workers: list[Worker],
    ledger: Ledger,
    history: History,
    final: dict[Place, array[int]],
) -> None:
    """Let workers settle everything, and see that nothing was withheld from them."""
    for worker in workers:
        worker.hasten()
    url = next(iter(cluster.nodes.values())).http_url
    deadline = time.monotonic() + _FINISH_DEADLINE_S
    while any(unsettled_in(url, topic) for topic in _QUEUES):
        if time.monotonic() > deadline:
            history.violate("messages are left although all nodes are well and workers ask")
            break
        time.sleep(_POLL_S)
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.join(_FINISH_DEADLINE_S)
    for place, values in final.items():
        if place.topic in _QUEUES and (missed := ledger.open_below(place, len(values))):
            history.violate(f"{len(missed)} messages of {place} came to no worker: {missed[:5]}")


def _read_all(cluster: LinkedCluster, place: Place) -> array[int]:
    """Return the value identities of a whole partition, by offset."""
    consumer = new_consumer(cluster.bootstrap, "checker")
    values: array[int] = array("q")
    deadline = time.monotonic() + _READ_DEADLINE_S
    try:
        end = _end_of(consumer, place, deadline)
        consumer.assign([TopicPartition(*place, 0)])
        while len(values) < end:
            assert time.monotonic() < deadline, f"{place}: {len(values)} of {end} records were read"
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                values.extend([NOT_READ] * (message.offset() - len(values)))
                values.append(decode_value(message.value()))
    finally:
        consumer.close()
    return values


def _end_of(consumer: object, place: Place, deadline: float) -> int:
    while True:
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=5)
        except KafkaException:
            assert time.monotonic() < deadline, f"nobody tells the end of {place}"
        else:
            return end


def _compare_replicas(
    cluster: LinkedCluster, final: dict[Place, array[int]], findings: Findings
) -> None:
    """Compare the files of all replicas, once followers have had the time to catch up."""
    for place, values in final.items():
        deadline = time.monotonic() + _FINISH_DEADLINE_S
        while True:
            copies = {
                node_id: up_to_offset(stored_bytes(node, *place), len(values))
                for node_id, node in cluster.nodes.items()
                if (node.data_dir / "topics" / place.topic / str(place.partition)).exists()
            }
            differences = list(check_replicas(place, copies))
            if not differences or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        findings.violations += differences
        if len(copies) < 3:
            findings.violations.append(f"{place} has replicas on nodes {sorted(copies)} only")

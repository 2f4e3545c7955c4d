"""Publishes, kills one victim per round, and compares topics and archive in the end.

A round waits until the copy has moved since the last kill, then for a random moment more, and
kills the driver, an executor or a broker. A driver starts again at once, a broker after a moment;
executors are Spark's to replace. Executors that outlive their driver may go on staging: it is the
brokers that keep them from publishing.
"""

import math
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable

from penstock.client import Client
from penstock.ids import TopicPartition
from penstock.spark import ArchiveLocation, ArchiveTable, read_range
from penstock.spark.brokers import LATEST, Brokers
from penstock.spark.retries import retrying
from tests.processes import ClusterProcess
from tests.spark_chaos.driver import DriverProcess
from tests.spark_chaos.job import FINISH, SOURCE, TARGET

PARTITIONS = 2
DRIVER_FAILURES_MAX = 20
VICTIMS = ("driver", "executor", "broker")
_PER_TICK = 4
_TICK_S = 0.02
_MOVE_DEADLINE_S = 400.0
_PAUSE_S_MAX = 6.0
_BROKER_AWAY_S_MAX = 3.0
_LOOK_S = 0.2
_PATIENCE_S = 120.0
_KEYS = 50


@dataclass(slots=True)
class Report:
    """What was done and what was found."""

    rounds: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    driver_failures: int = 0
    acknowledged: int = 0
    copied: int = 0
    missing: int = 0
    repeated: int = 0
    invented: int = 0
    out_of_order: int = 0
    archived: int = 0
    not_archived: int = 0
    archived_again: int = 0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Every record that was acknowledged is in copy and archive once, and nothing else is."""
        wrong_copy = self.missing or self.repeated or self.invented or self.out_of_order
        return not (wrong_copy or self.not_archived or self.archived_again)


def run_spark_chaos(
    directory: Path, *, rounds: int, seed: int, nodes: int, kill_s_max: float = math.inf
) -> Report:
    """Kill so many times, or for so long; return what came of it."""
    report = Report()
    begin = time.monotonic()
    with ClusterProcess(directory / "cluster", nodes) as cluster:
        run = _Run(cluster, directory, random.Random(seed), report)
        try:
            run.go(rounds, begin + kill_s_max)
        finally:
            run.end()
    report.seconds = time.monotonic() - begin
    return report


class _Run:
    def __init__(
        self, cluster: ClusterProcess, directory: Path, chance: random.Random, report: Report
    ) -> None:
        self._cluster = cluster
        self._chance = chance
        self._report = report
        self._finish = directory / FINISH
        self._archive = directory / "archive"
        urls = ",".join(node.http_url for node in cluster.nodes.values())
        self._driver = DriverProcess(
            [cluster.bootstrap, urls, str(directory)], directory / "driver.log"
        )
        self._brokers = Brokers(cluster.bootstrap, 30.0)
        self._publisher = Publisher(cluster.bootstrap)

    def go(self, rounds: int, deadline: float) -> None:
        """Kill round by round, then let the copy finish and compare."""
        _create_topics(self._cluster)
        _enable_archive(self._cluster, self._archive)
        self._publisher.start()
        self._driver.start()
        while self._report.rounds < rounds and time.monotonic() < deadline:
            self._wait_for_a_move()
            time.sleep(self._chance.uniform(0, _PAUSE_S_MAX))
            victim = VICTIMS[self._report.rounds % len(VICTIMS)]
            self._kill(victim)
            self._report.rounds += 1
            print(f"round {self._report.rounds}: {victim}, {self._copied()} copied", flush=True)
        self._wait_for_a_move()
        self._publisher.stop()
        self._finish.touch()
        while self._driver.wait(_MOVE_DEADLINE_S) != 0:
            self._start_again()
        self._compare()

    def end(self) -> None:
        """Leave nothing behind."""
        self._publisher.stop()
        self._driver.clean()

    def _kill(self, victim: str) -> None:
        match victim:
            case "driver":
                self._driver.kill()
                self._driver.start()
            case "executor":
                if not self._driver.kill_executor(self._chance):
                    return
            case _:
                node = self._cluster[self._chance.choice(self._cluster.running)]
                node.kill()
                time.sleep(self._chance.uniform(0, _BROKER_AWAY_S_MAX))
                node.start()
        self._report.kills[victim] += 1

    def _wait_for_a_move(self) -> None:
        before = self._copied()
        deadline = time.monotonic() + _MOVE_DEADLINE_S
        while self._copied() <= before:
            assert time.monotonic() < deadline, f"nothing was copied for {_MOVE_DEADLINE_S} s"
            if not self._driver.is_running:
                self._start_again()
            time.sleep(_LOOK_S)

    def _start_again(self) -> None:
        """Start a driver that ended without being killed, which the report tells."""
        self._report.driver_failures += 1
        assert self._report.driver_failures <= DRIVER_FAILURES_MAX, "the driver's log says why"
        self._driver.start()

    def _copied(self) -> int:
        return sum(self._ends(TARGET).values())

    def _ends(self, topic: str) -> dict[TopicPartition, int]:
        wanted = {TopicPartition(topic, number): LATEST for number in range(PARTITIONS)}
        return retrying(
            lambda: self._brokers.offsets(wanted), self._brokers.forget_leaders, _PATIENCE_S
        )

    def _compare(self) -> None:
        sent, copied = self._values(SOURCE), self._values(TARGET)
        report = self._report
        sent_once, found = set(sent), Counter(copied)
        report.acknowledged = len(self._publisher.acknowledged)
        report.copied = len(copied)
        report.missing = len((sent_once | self._publisher.acknowledged) - found.keys())
        report.invented = len(found.keys() - sent_once)
        # The same value twice in the source would be the publisher's doing, not the copy's.
        report.repeated = sum(count - 1 for count in found.values()) - (len(sent) - len(sent_once))
        report.out_of_order = _backward_steps(copied)
        self._compare_archive(sent)

    def _compare_archive(self, sent: list[int]) -> None:
        table = DeltaTable(str(self._archive)).to_pyarrow_table(columns=["value"])
        archived = Counter(int(value) for value in table["value"].to_pylist())
        report = self._report
        report.archived = archived.total()
        report.not_archived = (Counter(sent) - archived).total()
        report.archived_again = (archived - Counter(sent)).total()

    def _values(self, topic: str) -> list[int]:
        return [
            int(value)
            for place, end in self._ends(topic).items()
            for batch in read_range(
                self._cluster.bootstrap, topic, place.partition, 0, end, columns=["value"]
            )
            for value in batch["value"].to_pylist()
        ]


def _backward_steps(values: list[int]) -> int:
    """Count values that come after a later one of their key; keys stay within a partition."""
    latest: dict[int, int] = {}
    steps = 0
    for value in values:
        steps += value < latest.get(value % _KEYS, -1)
        latest[value % _KEYS] = max(value, latest.get(value % _KEYS, -1))
    return steps


class Publisher(threading.Thread):
    """Publishes numbers until it is stopped; `acknowledged` are those that were taken."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: set[int] = set()
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": int(1000 * _MOVE_DEADLINE_S),
            }
        )

    def run(self) -> None:
        """Publish."""
        number = 0
        while not self._stopping.wait(_TICK_S):
            for _ in range(_PER_TICK):
                self._send(number)
                number += 1
            self._producer.poll(0)
        self._producer.flush(_MOVE_DEADLINE_S)

    def stop(self) -> None:
        """Wait until all that was sent is acknowledged."""
        self._stopping.set()
        if self.is_alive():
            self.join()

    def _send(self, number: int) -> None:
        value = b"%d" % number
        self._producer.produce(
            SOURCE, key=b"%d" % (number % _KEYS), value=value, on_delivery=self._note
        )

    def _note(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            self.acknowledged.add(int(value))


def _enable_archive(cluster: ClusterProcess, path: Path) -> None:
    ArchiveTable.create(ArchiveLocation(str(path)))
    with Client([node.http_url for node in cluster.nodes.values()]) as client:
        client.alter_topic(SOURCE, settings={"archive.path": str(path)})


def _create_topics(cluster: ClusterProcess) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    replicas = len(cluster.nodes)
    topics = [NewTopic(name, PARTITIONS, replicas) for name in (SOURCE, TARGET)]
    for created in admin.create_topics(topics).values():
        created.result(_PATIENCE_S)

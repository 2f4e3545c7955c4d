"""Epochs of a writer are published once and whole while nodes are killed and drivers give up."""

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.client import Admin, Connection, NewTopic, StagedPart, StagedWriter, StageName
from penstock.ids import TopicPartition
from penstock.record import Record, encode_batch
from penstock.spark import read_range
from penstock.spark.brokers import LATEST, brokers_of
from tests.kafka_clients import unique
from tests.processes import ClusterProcess

pytestmark = pytest.mark.crash

PARTITIONS = 3
KILLS = 4
PATIENCE_S = 120


class Driver:
    """Runs epochs as Spark does; now and then it dies before its commit has returned.

    What goes on after its death is the worst that a driver can leave behind: a commit that is still
    on its way while the next run of the epoch, with other rows, is being staged.
    """

    def __init__(self, urls: list[str], topic: str, seed: int) -> None:
        self._writer = StagedWriter(urls, wait_s=10, retry_s=PATIENCE_S)
        self._topic = topic
        self._random = random.Random(seed)
        self._threads = ThreadPoolExecutor(16)
        self._left_behind: list[Future[str]] = []
        self._runs = 0
        self.committed = 0
        self.stopping = threading.Event()

    def live(self) -> None:
        """Write epochs until told to stop; then finish the last one."""
        while not self.stopping.is_set():
            while not self._run(self.committed):
                pass
            self.committed += 1
        for commit in self._left_behind:
            commit.result(PATIENCE_S)

    def _run(self, epoch: int) -> bool:
        self._runs += 1
        run = f"run{self._runs}"
        parts = [self._stage(epoch, run, number) for number in self._partitions()]
        commit = self._threads.submit(self._writer.commit, self._topic, "w", epoch, run, parts)
        if self._random.random() < 0.3:
            time.sleep(self._random.random() / 20)
            self._left_behind.append(commit)
            return False
        commit.result(PATIENCE_S)
        return True

    def _partitions(self) -> list[int]:
        return sorted(self._random.sample(range(PARTITIONS), self._random.randint(1, PARTITIONS)))

    def _stage(self, epoch: int, run: str, partition: int) -> StagedPart:
        place = TopicPartition(self._topic, partition)
        stages = []
        for task in ("t0", "t1"):
            name = StageName(home=self._topic, writer="w", epoch=epoch, run=run, stage=task)
            for number in range(2):
                self._writer.stage(name, place, number, _batch(epoch, run, f"{task}{number}"))
            stages.append((task, 2))
        return StagedPart(place, stages)


def _batch(epoch: int, run: str, place: str) -> bytes:
    now_ms = int(time.time() * 1000)
    value = f"{epoch}.{run}.{place}".encode()
    return bytes(encode_batch([Record(0, now_ms, None, value), Record(1, now_ms, None, value)]))


def test_every_epoch_comes_once_and_from_one_run_although_nodes_are_killed(tmp_path: Path) -> None:
    chance = random.Random(7)
    with ClusterProcess(tmp_path, 3) as cluster:
        topic = unique("topic")
        admin = Admin(Connection(cluster.bootstrap))
        admin.create_topic(NewTopic(name=topic, partitions=PARTITIONS, replication_factor=3))
        driver = Driver([node.http_url for node in cluster.nodes.values()], topic, seed=3)
        driving = ThreadPoolExecutor(1).submit(driver.live)
        for _ in range(KILLS):
            time.sleep(1 + chance.random())
            victim = cluster[chance.choice(cluster.running)]
            victim.kill()
            time.sleep(chance.random())
            victim.start()
        driver.stopping.set()
        driving.result(2 * PATIENCE_S)
        found = [_values(cluster.bootstrap, topic, number) for number in range(PARTITIONS)]

    assert driver.committed > KILLS
    for epoch in range(driver.committed):
        parts = [[each for each in part if each[0] == str(epoch)] for part in found]
        assert len({run for part in parts for _, run, _ in part}) == 1, f"epoch {epoch}: {parts}"
        for part in filter(None, parts):
            places = [place for _, _, place in part]
            assert places == ["t00", "t00", "t01", "t01", "t10", "t10", "t11", "t11"]
    for part in found:
        epochs = [int(epoch) for epoch, _, _ in part]
        assert epochs == sorted(epochs)


def _values(bootstrap: str, topic: str, partition: int) -> list[list[str]]:
    place = TopicPartition(topic, partition)
    end = brokers_of(bootstrap, 10).offsets({place: LATEST})[place]
    return [
        value.decode().split(".")
        for batch in read_range(bootstrap, topic, partition, 0, end, columns=["value"])
        for value in batch["value"].to_pylist()
    ]

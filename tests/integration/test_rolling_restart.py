"""Nodes that stop and start one after the other, while a producer goes on."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from penstock.client import ClusterAdmin
from tests.cluster_views import leader_of, new_replicated_topic, view_from, wait_for
from tests.integration.clients import logged, read_values
from tests.kafka_clients import unique
from tests.processes import ClusterProcess

pytestmark = pytest.mark.crash

PARTITIONS = 6
# An election that waits for a timeout takes at least this long: 100 ticks of 200 ms.
SLOW_ELECTIONS = ("--election-ticks", "100")
_INTERVAL_S = 0.005


class SteadyProducer:
    """Writes to all partitions in turn and notes when each was last acknowledged."""

    def __init__(self, cluster: ClusterProcess, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "log_level": 0,
                "broker.address.family": "v4",
            }
        )
        self._number = 0
        self._last_s: dict[int, float] = {}
        self.longest_pause_s = 0.0
        self.acknowledged: dict[int, set[bytes]] = {each: set() for each in range(PARTITIONS)}
        self.refused: list[KafkaError] = []

    def run(self, seconds: float) -> None:
        """Write for so long."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            value = b"%d" % self._number
            partition = self._number % PARTITIONS
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._note)
            self._number += 1
            self._producer.poll(_INTERVAL_S)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
            return
        partition, now_s = message.partition() or 0, time.monotonic()
        self.acknowledged[partition].add(message.value() or b"")
        pause_s = now_s - self._last_s.get(partition, now_s)
        self.longest_pause_s = max(self.longest_pause_s, pause_s)
        self._last_s[partition] = now_s


@contextmanager
def busy_cluster(
    directory: Path, *flags: str
) -> Iterator[tuple[ClusterProcess, str, SteadyProducer]]:
    with ClusterProcess(directory, 3, *flags) as cluster:
        topic = new_replicated_topic(cluster, unique("rolling"), PARTITIONS)
        yield cluster, topic, SteadyProducer(cluster, topic)


def is_in_step(cluster: ClusterProcess, node_id: int) -> bool:
    overview = ClusterAdmin(cluster[node_id].http_url).overview()
    return not overview.behind and not overview.without_leader


def test_a_rolling_restart_waits_for_no_election_and_loses_nothing(tmp_path: Path) -> None:
    # The longest pause is reported by the test's output; that no election was waited for shows in
    # the time that it would have taken, which is far longer than any of this.
    with busy_cluster(tmp_path, *SLOW_ELECTIONS) as (cluster, topic, producer):
        producer.run(1.0)
        for node_id, node in cluster.nodes.items():
            assert node.stop() == 0
            (told,) = logged(node, "leadership handed over")
            assert told["left"] == 0
            producer.run(0.5)
            node.start()
            wait_for(lambda node_id=node_id: is_in_step(cluster, node_id), "replicas in step")
            producer.run(0.5)
        producer.finish()

        print(f"longest pause of a partition: {producer.longest_pause_s:.2f} s")
        assert producer.refused == []
        for partition, values in producer.acknowledged.items():
            leader = cluster[leader_of(cluster, topic, partition)]
            assert values <= set(read_values(leader, topic, partition))


def test_leadership_returns_to_the_first_replicas_and_stays_there(tmp_path: Path) -> None:
    with busy_cluster(tmp_path, "--leader-balance-interval-ms", "300") as (cluster, topic, _):
        asked = cluster[1]
        intended = {place: nodes[0] for place, nodes in view_from(asked).replicas.items()}
        cluster[2].kill()
        wait_for(
            lambda: all(leader in {1, 3} for leader in view_from(asked).leaders.values()),
            "others lead",
        )

        cluster[2].start()

        wait_for(lambda: view_from(asked).leaders == intended, "the first replicas lead again")
        begin = len(asked.log_path.read_bytes())
        time.sleep(2)
        assert view_from(asked).leaders == intended
        # Consumer groups have leaders too; theirs may return a little later.
        returns = logged(asked, "leadership returns", begin)
        assert [each for each in returns if str(each["log"]).startswith(topic)] == []


def test_leadership_stays_where_it_is_when_balancing_is_off(tmp_path: Path) -> None:
    with busy_cluster(tmp_path, "--leader-balance-interval-ms", "0") as (cluster, _, producer):
        assert cluster[2].stop() == 0
        cluster[2].start()
        wait_for(lambda: is_in_step(cluster, 2), "replicas in step")
        producer.run(2.0)
        producer.finish()

        assert 2 not in view_from(cluster[1]).leaders.values()

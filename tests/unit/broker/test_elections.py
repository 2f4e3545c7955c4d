"""Elections that clients ask for, on a node that hears of leaders before or after they serve."""

import uuid
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.broker.elections import Elections
from penstock.cluster import ClusterMetadata, Leader, PartitionStatus, Survey
from penstock.cluster.commands import CreateTopic, encode_command
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.status import ReplicaStatus
from penstock.errors import TimedOut
from penstock.ids import TopicPartition
from penstock.log import StateEntry
from tests.unit.cluster.workplaces import run

PLACE = TopicPartition("orders", 0)
FIRST, SECOND = (1, 10), (2, 20)
GROUP = 10_000


@dataclass
class FakeCluster:
    """A cluster of two nodes: the second leads a partition of which the first is the first replica.

    The first serves when it has been asked for its partitions `silent_rounds` times since it leads.
    """

    silent_rounds: int = 0
    metadata: ClusterMetadata = field(default_factory=ClusterMetadata)
    leaders: LeaderTable = field(default_factory=LeaderTable)
    reachable: frozenset[int] = frozenset((1, 2))
    asked: list[int] = field(default_factory=list)
    serving: int = 2

    def __post_init__(self) -> None:
        command = CreateTopic("orders", uuid.uuid4(), [(FIRST, SECOND)], {})
        self.metadata.apply_state(StateEntry(1, 1, 0, encode_command(command)))
        self.overview = self.leadership = self

    def replicas_of(self, place: TopicPartition) -> Any:
        return self.metadata.topic(place.topic).replicas[place.partition]

    async def survey(self) -> Survey:
        if self.asked and self.silent_rounds == 0:
            self.serving = 1
        leader = -1 if self.asked and self.serving == 2 else self.serving
        self.silent_rounds -= bool(self.asked)
        status = PartitionStatus(
            topic=PLACE.topic,
            partition=PLACE.partition,
            group=GROUP,
            leader=leader,
            term=7 - self.serving,
            replicas=[1, 2],
            leaving=[],
            is_changing=False,
            start_offset=0,
            high_watermark=0,
            size_bytes=0,
            bytes_in_per_s=0.0,
            followers=[ReplicaStatus(3 - self.serving, True, True, 0)],
        )
        return Survey([status], frozenset())

    async def transfer(self, group: int, to: int) -> None:
        """Let a node be elected, by whom this one knows to lead."""
        known = self.leaders.leader_of(group)
        assert known is not None
        self.asked.append(known.node)
        self.leaders.learn([Leader(group, 6, to)])


def elect(cluster: FakeCluster) -> Any:
    elections = Elections(cast("Any", cluster))
    return run(elections.elect_preferred([PLACE], wait_ms=5_000))


def test_an_election_is_answered_when_the_new_leader_serves() -> None:
    cluster = FakeCluster(silent_rounds=3)

    assert elect(cluster) == {PLACE: None}
    assert cluster.serving == 1


def test_an_election_whose_leader_never_serves_times_out() -> None:
    cluster = FakeCluster(silent_rounds=10**9)

    (error,) = elect(cluster).values()

    assert isinstance(error, TimedOut)


def test_who_hands_over_is_asked_although_this_node_has_heard_of_an_older_leader() -> None:
    cluster = FakeCluster()
    cluster.leaders.learn([Leader(GROUP, 4, 1)])

    assert elect(cluster) == {PLACE: None}
    assert cluster.asked == [2]

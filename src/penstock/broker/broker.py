"""What a node can do, as verbs. Every door speaks to this class and to nothing below it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from penstock.broker.archives import Archives
from penstock.broker.burial import Burial
from penstock.broker.calls import Calls
from penstock.broker.dead_letters import DeadLetters
from penstock.broker.elections import Elections
from penstock.broker.fetch import Fetcher
from penstock.broker.groups import CommitsAsked, Groups
from penstock.broker.messages import Messages
from penstock.broker.operations import Operations
from penstock.broker.publish import Publisher
from penstock.broker.queues import Queues
from penstock.broker.quorum import Quorum
from penstock.broker.resharding import Reshards
from penstock.broker.schedule import Schedule
from penstock.broker.share import ShareGroups
from penstock.broker.statistics import NodeCollector, Statistics
from penstock.broker.tasks import TaskParts, Tasks
from penstock.broker.topics import Topics
from penstock.broker.writes import Writes
from penstock.cluster import (
    METADATA_GROUP,
    Cluster,
    ClusterMetadata,
    DiskSpace,
    Housekeeper,
    Node,
    Partition,
    Replicas,
    Workplace,
)
from penstock.config import Address, NodeOptions
from penstock.errors import CoordinatorLoading
from penstock.ids import ProducerId, TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """One condition that a ready node fulfils."""

    name: str
    is_passed: bool
    detail: str


class Broker:
    """One node's verbs, and the state behind them."""

    def __init__(self, options: NodeOptions, workplace: Workplace) -> None:
        """Open everything on disk. Runs in a thread."""
        self.options = options
        self.statistics = Statistics()
        self.groups = Groups(options, workplace)
        self.cluster = Cluster(options, workplace, self.groups.machine)
        self.calls = Calls(self.cluster)
        self.calls.serve("groups.commits", CommitsAsked, self.groups.commits)
        self.space = DiskSpace(options, workplace)
        self.publisher = Publisher(self.cluster, self.space, workplace.clock, self.statistics)
        self.queues = Queues(self.cluster, self.calls)
        self.share = ShareGroups(self.cluster, self.queues, options, workplace.clock)
        self.fetcher = Fetcher(self.cluster, self.statistics)
        self.topics = Topics(self.cluster, options)
        self.messages = Messages(
            self.cluster, self.calls, self.publisher, self.topics, workplace.clock
        )
        self._burial = Burial(self.cluster, self.calls, self.topics, workplace.clock)
        self.dead_letters = DeadLetters(self.cluster, self.calls, self.messages)
        self.archives = Archives(self.cluster, self.calls, workplace.clock)
        self.schedule = Schedule(self.cluster, self.calls, workplace.clock)
        self.tasks = Tasks(
            self.cluster,
            self.calls,
            TaskParts(self.topics, self.messages, self.queues, self.schedule),
        )
        self.writes = Writes(self.cluster, self.calls, self.publisher, options, workplace.clock)
        self.reshards = Reshards(self.cluster, self.calls)
        self.operations = Operations(self.cluster, options.node_id)
        self.elections = Elections(self.cluster)
        self.quorum = Quorum(self.cluster, self.calls)
        self.housekeeper = Housekeeper(self.cluster, self.space, options, workplace)
        self.registry = CollectorRegistry()
        self.registry.register(NodeCollector(self.statistics, self.cluster, self.space))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._clock = workplace.clock
        self._started_s = workplace.clock.steady_s()
        self._has_joined = False
        self._is_draining = False

    async def start(self, host: str) -> None:
        """Open what is on disk, and found or find the cluster."""
        self.cluster.replicas.on_released = self.statistics.count_released
        self.cluster.on_shard_leadership = self.groups.leadership_changed
        self.metadata.watch(lambda: self.groups.topics_changed(list(self.metadata.topics.values())))
        await self.cluster.start(host)
        self.writes.start()

    async def register(self, *, kafka: Address, http_port: int) -> None:
        """Tell the cluster where clients reach this node; returns when the node can serve."""
        await self.cluster.register(kafka=kafka, http_port=http_port)
        self._has_joined = True

    @property
    def missing_nodes(self) -> list[int]:
        """First nodes that have not been heard from, while the cluster is being formed."""
        return self.cluster.missing_nodes

    def leader_of(self, place: TopicPartition) -> tuple[int, int]:
        """Return the node that leads a partition and its term; -1 while there is none."""
        return self._known_leader(self.cluster.replicas_of(place).group)

    def replicas_of(self, place: TopicPartition) -> Replicas:
        """Return who replicates a partition."""
        return self.cluster.replicas_of(place)

    def is_reachable(self, node_id: int) -> bool:
        """True for this node and for those that it has a link to."""
        return node_id == self.node_id or node_id in self.cluster.links.connected

    @property
    def listed_nodes(self) -> list[Node]:
        """The nodes that clients are told of, without those that are down.

        Clients take a node that is listed for one that answers: share consumers in Java leave the
        leader that they know only when it is not. A node that reaches no majority is the one that
        is cut off, and lists all.
        """
        nodes = list(self.metadata.nodes.values())
        reached = [node for node in nodes if self.is_reachable(node.node_id)]
        return reached if 2 * len(reached) > len(nodes) else nodes

    @property
    def is_cut_off(self) -> bool:
        """True when others may know better than this node who leads."""
        return self.cluster.is_cut_off

    @property
    def was_removed(self) -> bool:
        """True when the cluster goes on without this node."""
        return self.cluster.was_removed

    @property
    def controller(self) -> int:
        """The node that leads the metadata, or this one: any node carries out changes."""
        leader = self._known_leader(METADATA_GROUP)[0]
        return leader if leader in self.metadata.nodes else self.node_id

    @property
    def metadata_version(self) -> int:
        """Changes whenever a topic, a node or a leader does."""
        return self.cluster.version

    def coordinator_of(self, group_id: str) -> Node:
        """Return the node that coordinates a consumer group."""
        shards = self.metadata.shards
        shard = self.groups.shard_of(group_id)
        node_id = self._known_leader(shards[shard].group)[0] if shards else -1
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise CoordinatorLoading(f"the coordinator of group {group_id!r} is being elected")
        return node

    def _known_leader(self, group: int) -> tuple[int, int]:
        leader = self.cluster.leaders.leader_of(group)
        return (leader.node, leader.term) if leader else (-1, -1)

    @property
    def metadata(self) -> ClusterMetadata:
        """The cluster's topics."""
        return self.cluster.metadata

    @property
    def partitions(self) -> list[Partition]:
        """All partitions that are open on this node."""
        return self.cluster.partitions

    def partition(self, place: TopicPartition) -> Partition:
        """Return a partition, or raise why it cannot be used."""
        return self.cluster.partition(place)

    async def new_producer_id(self) -> ProducerId:
        """Return an id that no producer ever had."""
        return await self.cluster.new_producer_id()

    @property
    def node_id(self) -> int:
        """The node's number in its cluster."""
        return self.options.node_id

    def now_ms(self) -> int:
        """The node's time."""
        return self._clock.now_ms()

    def uptime_s(self) -> float:
        """Seconds since the node started."""
        return self._clock.steady_s() - self._started_s

    def checks(self) -> Sequence[Check]:
        """All conditions of readiness, passed or not."""
        failed = [str(place) for place in self.cluster.failures]
        failed += [log.name for log in self.cluster.logs() if log.failure is not None]
        return (
            Check("joined", self._belongs(), self._joining()),
            Check(
                "serving",
                not self._is_draining,
                f"the node is {'being stopped' if self._is_draining else 'serving requests'}",
            ),
            Check(
                "logs-usable",
                not failed,
                f"these logs cannot be used: {', '.join(failed[:20])}" if failed else "all logs",
            ),
            Check("disk-space", not self.space.is_low, self.space.told),
        )

    def _belongs(self) -> bool:
        return self._has_joined and not (self.is_cut_off or self.was_removed)

    def _joining(self) -> str:
        if self.cluster.was_removed:
            return (
                "this node was removed from its cluster: stop it, or start it again to let it join"
            )
        if self._has_joined and self.cluster.is_cut_off:
            return "the node is cut off: it finds no leader of the metadata"
        if self._has_joined:
            return "the node knows the topics of its cluster"
        if self.missing_nodes:
            return f"nodes that have not been heard from: {self.missing_nodes}"
        return "the cluster has not answered this node yet"

    def start_draining(self) -> None:
        """Tell readiness checks that the node is about to stop."""
        self._is_draining = True

    async def hand_over(self) -> None:
        """Let other nodes lead what this one leads; doors stay open and send clients there."""
        await self.cluster.hand_over()

    async def close(self) -> None:
        """Close all logs; requests that still wait are failed."""
        self.groups.close()
        await self.share.close()
        await self._burial.close()
        await self.writes.close()
        await self.queues.close()
        await self.cluster.close()

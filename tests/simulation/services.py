"""What a node of the simulation does for messages: the broker's own verbs on one partition.

The real settlement of receipts and the real burial of dead letters run here, with the real calls
from node to node. Dead letters go to the partition that they come from: so their copies are
messages again, and the leader who buries is mostly the one who asks for it.
"""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.broker.burial import Burial
from penstock.broker.calls import Calls
from penstock.broker.settlement import Settlement
from penstock.cluster.deliveries import Delivery, DeliveryHost
from penstock.cluster.partition import Partition
from penstock.delivery import GroupSettings
from penstock.errors import Unavailable
from penstock.ids import TopicPartition
from tests.simulation.books import Moment
from tests.simulation.requests import Requests

if TYPE_CHECKING:
    from tests.simulation.node import Node

# No key is forgotten: a jump of the clock would be enough to make that right.
WINDOW_MS = 1 << 40


class Services:
    """The verbs of one life of a node."""

    def __init__(
        self,
        node: "Node",
        requests: Requests,
        *,
        group: int,
        settings: dict[str, GroupSettings],
    ) -> None:
        self._node = node
        self.host = DeliveryHost(lambda _topic, group: settings[group])
        self.cluster = _OnePartition(node, requests, group, self.host)
        # The verbs need no more of a cluster than this.
        cluster: Any = self.cluster
        calls = Calls(cluster)
        self.settlement = Settlement(cluster, calls)
        unused: Any = None
        self.burial = Burial(cluster, calls, unused, node.clock)

    async def receive(self, group: str, *, count_max: int, consumer: str) -> Delivery | None:
        """Hand out messages on the leader; the group begins with the first who asks."""
        queue = self._partition.queue
        if group not in queue.groups:
            await queue.create_group(group, queue.start_offset)
        delivery = queue.receive_nowait(
            group, count_max=count_max, lease_ms=None, consumer=consumer
        )
        if delivery is not None:
            books = self._node.referee.books
            assert books is not None
            books.hand_out(group, delivery, Moment(queue.log.term, queue.log.applied_index))
        return delivery

    @property
    def _partition(self) -> Partition:
        return self.cluster.partition(None)


class _OnePartition:
    """As much of a cluster as the verbs of one partition ask for."""

    def __init__(self, node: "Node", requests: Requests, group: int, host: DeliveryHost) -> None:
        topic = SimpleNamespace(name="orders", topic_id="0", partitions=1)
        self.member = node.member
        self.links = requests
        self.on_call: Any = None
        self.metadata = SimpleNamespace(topics={"orders": topic}, topic=lambda _: topic)
        self.settings = lambda _: SimpleNamespace(idempotency_window_ms=WINDOW_MS)
        # Leaders are not announced here, so nobody hears of another one.
        self.leaders = SimpleNamespace(leader_of=self._leader_of, watch=lambda _notify: None)
        self.replicas = SimpleNamespace(delivery=host, by_group={})
        self._node = node
        self._group = group

    def replicas_of(self, place: TopicPartition) -> Any:
        del place
        return SimpleNamespace(group=self._group)

    def _leader_of(self, group: int) -> Any:
        log = self._node.log
        self.replicas.by_group = {group: log}
        leader = None if log is None else log.leader
        return None if leader is None else SimpleNamespace(node=leader)

    def partition(self, place: TopicPartition | None) -> Partition:
        del place
        if self._node.partition is None:
            raise Unavailable("the replica is not open")
        return self._node.partition

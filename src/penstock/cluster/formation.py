"""How a node comes to belong to a cluster.

The metadata group begins with a membership that names every first node *and its incarnation*. Nodes
that were given each other's addresses exchange hellos. When the one with the smallest number has
heard from all others, and none of them belongs to a cluster, it founds one: it writes down the
membership, and from then on its hello carries it. A node that is named in a founding membership, by
number and incarnation, writes it down too.

What may crash: a founder that crashes before the membership is durable has told nobody; after that,
it finds the membership again and goes on telling it. A node that lost its disk has another
incarnation, is named in no founding membership, and therefore founds and adopts nothing: it asks to
join. So does a node that was started to join a cluster, for as long as it takes.
"""

import uuid

from penstock.cluster.links import Hello
from penstock.errors import Conflict
from penstock.ids import NodeId
from penstock.raft import Incarnation, Member, Membership

LINK_VERSION = 1


class Formation:
    """What this node knows about the founding of its cluster."""

    def __init__(self, member: Member, first_nodes: frozenset[int], *, joins: bool = False) -> None:
        self._member = member
        self._joins = joins
        self._first_nodes = first_nodes | {member.node}
        self._heard: dict[int, Hello] = {}
        self.cluster_id: str | None = None
        self.founding: Membership | None = None

    @property
    def is_alone(self) -> bool:
        """True when no other node was named."""
        return self._first_nodes == {self._member.node}

    @property
    def missing(self) -> list[int]:
        """The first nodes that have not been heard from."""
        known = set(self._heard) | {self._member.node}
        return sorted(self._first_nodes - known)

    def hello(self) -> Hello:
        """What this node says about itself."""
        return Hello(
            LINK_VERSION,
            self._member.node,
            self._member.incarnation,
            self.cluster_id,
            self.founding.encode() if self.founding else None,
        )

    def heard(self, hello: Hello) -> None:
        """Take in a hello; raise when the two nodes cannot belong together."""
        if hello.version != LINK_VERSION:
            raise Conflict(f"node {hello.node_id} speaks version {hello.version} of the links")
        if self.cluster_id and hello.cluster_id and self.cluster_id != hello.cluster_id:
            raise Conflict(
                f"node {hello.node_id} belongs to cluster {hello.cluster_id}, this one to"
                f" {self.cluster_id}"
            )
        self._heard[hello.node_id] = hello

    def adopt(self, cluster_id: str, founding: Membership) -> None:
        """Belong to a cluster from now on."""
        self.cluster_id = cluster_id
        self.founding = founding

    def decide(self) -> tuple[str, Membership] | None:
        """Return the cluster that this node can found or adopt now."""
        for hello in self._heard.values():
            if hello.cluster_id and hello.founding:
                founding = Membership.decode(hello.founding)
                if self._member in founding.voters:
                    return hello.cluster_id, founding
        if self._joins:
            # Whom it was told to join may not belong to the cluster yet.
            return None
        is_first = self._member.node == min(self._first_nodes)
        if not is_first or self.missing or any(h.cluster_id for h in self._heard.values()):
            return None
        members = [self._member]
        members += [
            Member(NodeId(hello.node_id), Incarnation(hello.incarnation))
            for hello in self._heard.values()
            if hello.node_id in self._first_nodes
        ]
        return str(uuid.uuid4()), Membership.of(members)

    @property
    def must_join(self) -> bool:
        """True when others have a cluster that does not know this node's memory."""
        return self.founding is None and any(
            hello.cluster_id and self.decide() is None for hello in self._heard.values()
        )

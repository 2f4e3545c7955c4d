"""What the metadata describes: nodes, who replicates which log, and topics."""

import uuid

import msgspec

from penstock.cluster.resharding import Resharding
from penstock.ids import NodeId
from penstock.raft import Incarnation, Member


class Node(msgspec.Struct, frozen=True):
    """One node: its memory, where other nodes reach it, and where clients do."""

    node_id: int
    incarnation: int
    peer_host: str
    peer_port: int
    kafka_host: str
    kafka_port: int
    http_port: int
    replaced: dict[int, int] = {}
    """Incarnations of the node in groups whose replica it has lost or given up.

    One for each log that the node has ever left, as long as the log exists: no more than there are
    logs, because groups that are gone are forgotten with the next replica that goes, and by the
    next start. A log cannot be forgotten earlier. Membership entries that name the node's first
    incarnation lie among the records, and retention may keep these for ever; a newcomer is filled
    from the start of the log and goes by each of them on its way. Only when none is left could the
    first incarnation come back, and that no node knows of a log that it does not replicate.
    """

    def member_of(self, group: int) -> Member:
        """The node as a member of a group."""
        incarnation = self.replaced.get(group, self.incarnation)
        return Member(NodeId(self.node_id), Incarnation(incarnation))


class Replicas(msgspec.Struct, frozen=True):
    """Who replicates one log: its group's number, its first members, and those it is to have.

    The group's leader brings the group's own membership in line with `members`; until it has, those
    who are to go are listed as `leaving` and keep their replica.
    Only founders may begin the group, and only until the first change of members is settled. Before
    that, nobody has given up a replica, and perhaps nobody has begun. Afterwards the group has a
    leader and its log names its members; a node that has left and comes back has forgotten its
    votes, so it starts with nothing, as a node that came later does, and learns everything from the
    leader.
    """

    group: int
    founders: tuple[tuple[int, int], ...]
    members: tuple[tuple[int, int], ...]
    leaving: tuple[tuple[int, int], ...] = ()
    former: tuple[tuple[int, int], ...] = ()
    """The members before the change that is being carried out; what cancelling it returns to."""
    asked_at: int = 0
    """The entry that asked for the change; changes wait for each other in this order."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers of the nodes that are to replicate the log."""
        return tuple(node for node, _ in self.members)

    def is_kept_by(self, node: int) -> bool:
        """Whether a node is to replicate the log, or still does."""
        return node in (*self.nodes, *self.leaving_nodes)

    @property
    def leaving_nodes(self) -> tuple[int, ...]:
        """Nodes that keep a replica until the change that is being carried out is settled.

        A node that has lost its replica leaves and joins under the same number, and stays.
        """
        return tuple(dict.fromkeys(node for node, _ in self.leaving if node not in self.nodes))

    @property
    def joining_nodes(self) -> tuple[int, ...]:
        """Nodes that are being filled, as far as the metadata knows."""
        if not self.former:
            return ()
        return tuple(sorted(node for node, _ in set(self.members).difference(self.former)))


class Topic(msgspec.Struct, frozen=True):
    """One topic."""

    name: str
    topic_id: uuid.UUID
    replicas: tuple[Replicas, ...]
    settings: dict[str, str]
    grown_by: uuid.UUID | None = None
    """The request that last added partitions."""
    groups: dict[str, dict[str, str]] = {}
    """The queue groups, each with the settings that are its own."""
    directory: str = ""
    """Where its files are, when that is not its name: a topic that is renamed does not move."""
    resharding: Resharding | None = None
    """The copy that is to take its place, or has taken it."""
    era: int = 0
    """The fence under which it came to its name; 0 for a topic that was created under it."""
    positions: dict[str, tuple[int, ...]] = {}
    """Where consumer groups go on that knew another topic under the name."""

    @property
    def is_former(self) -> bool:
        """True when a copy has taken its place and its name."""
        return self.resharding is not None and self.resharding.is_switched

    @property
    def public_id(self) -> uuid.UUID:
        """The id by which clients know it.

        A former topic has another one than before: clients that still ask by the id which they
        learnt under the name must not read it with positions of the copy.
        """
        return uuid.uuid5(self.topic_id, self.name) if self.is_former else self.topic_id

    @property
    def files(self) -> str:
        """The name of the directory that holds its partitions."""
        return self.directory or self.name

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self.replicas)

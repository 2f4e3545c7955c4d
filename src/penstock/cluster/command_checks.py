"""What the leader of the metadata refuses before it becomes an entry.

Applying a command refuses what the state does not allow. Here is refused what no state would allow
and what applying takes on trust: logs without replicas, nodes that nobody knows, nonsense numbers.
"""

from collections.abc import Iterable, Sequence

from penstock.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    ChangeReplicas,
    Command,
    CreateTopic,
    PlaceShards,
    RegisterNode,
    RemoveNode,
)
from penstock.cluster.described import Node
from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import Conflict, InvalidAssignment, InvalidRequest, NotFound
from penstock.raft import Membership

_PRODUCER_IDS_MAX = 1_000_000
_PORT_MAX = 65_535

Members = Sequence[tuple[int, int]]


def check_command(command: Command, metadata: ClusterMetadata, voters: Membership) -> None:
    """Raise when a command must not be proposed; `voters` are those of the metadata."""
    match command:
        case RemoveNode(node_id):
            _check_majority_without(node_id, voters)
        case RegisterNode(node):
            _check_node(node)
        case PlaceShards(placement) | CreateTopic(placement=placement):
            _check_placement(placement, metadata)
        case AddPartitions():
            _check_growth(command, metadata)
        case ChangeReplicas(group, members):
            if all(each.group != group for each in metadata.all_replicas()):
                raise NotFound(f"there is no log of group {group}")
            _check_placement([members], metadata)
        case AllocateProducerIds(count):
            if not 1 <= count <= _PRODUCER_IDS_MAX:
                raise InvalidRequest(
                    f"{count} producer ids were asked for, not 1 to {_PRODUCER_IDS_MAX}"
                )
        case _:
            pass


def _check_node(node: Node) -> None:
    if node.node_id < 0:
        raise InvalidRequest(f"{node.node_id} is no number of a node")
    for port in (node.peer_port, node.kafka_port, node.http_port):
        if not 0 <= port <= _PORT_MAX:
            raise InvalidRequest(f"node {node.node_id} names port {port}, not 0 to {_PORT_MAX}")


def _check_majority_without(node_id: int, membership: Membership) -> None:
    """A node that was removed may be switched off at once.

    Until its vote is taken, the others must be able to do without it what they could do alone: with
    one of four voters gone, the loss of another would leave no majority, and with three it does.
    """
    others = [voter for voter in membership.voters if voter.node != node_id]
    if not others or membership.quorum > Membership.of(others).quorum:
        raise Conflict(
            f"node {node_id} is one of {len(membership.voters)} that vote on the metadata, and the"
            " others need its vote; drain it, which takes its vote, and try again"
        )


def _check_growth(command: AddPartitions, metadata: ClusterMetadata) -> None:
    topic = metadata.topic_by_id(command.topic_id)
    _check_placement(command.placement, metadata)
    missing = command.partitions - topic.partitions - len(command.placement)
    if missing > 0:
        raise InvalidRequest(f"nobody is named to replicate {missing} partitions of {topic.name!r}")


def _check_placement(placement: Iterable[Members], metadata: ClusterMetadata) -> None:
    for members in placement:
        nodes = [node for node, _ in members]
        unknown = [node for node in nodes if node not in metadata.nodes]
        if not nodes or len(set(nodes)) < len(nodes) or unknown:
            raise InvalidAssignment(
                f"replicas {nodes} were asked for, the cluster has nodes {sorted(metadata.nodes)}"
            )

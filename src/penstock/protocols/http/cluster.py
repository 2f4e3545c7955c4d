"""`/v1/cluster`: look at the cluster and change it, through any of its nodes.

Changes that take time are answered with 202 when they have begun; the partitions and nodes tell how
far they are. A page of another site cannot make a browser send them.
"""

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import ClusterStatus, NodeStatus, PartitionStatus, hot_partitions
from penstock.errors import TopicNotFound
from penstock.ids import TopicPartition
from penstock.protocols.http.cluster_answers import (
    BalanceAccepted,
    ClusterNode,
    ClusterNodes,
    ClusterOverview,
    ClusterPartition,
    ClusterPartitions,
    ClusterReplica,
    DrainAccepted,
    DrainRequest,
    MoveRequest,
    NodeAccepted,
    PartitionAccepted,
    TransferRequest,
)
from penstock.protocols.http.endpoints import FAILURES, TOPIC, Answer, Endpoint, Parameter
from penstock.protocols.http.exchange import from_here, json_response, read_body, read_number
from penstock.protocols.http.view import NodeView, OperationsView

_PARTITION = Parameter(name="partition", type="integer", meaning="Number of the partition, from 0.")
_NODE = Parameter(name="node_id", type="integer", meaning="Number of a node.")
_NODE_DONE = Answer(meaning="It is done.", body=NodeAccepted)


def cluster_endpoints(view: NodeView) -> list[Endpoint]:
    """Everything below `/v1/cluster`; `view` is asked anew for every answer."""
    return [
        *_looking(view),
        *_changing_partitions(view),
        *_draining(view),
        *_changing_all(view),
    ]


def _looking(view: NodeView) -> list[Endpoint]:
    async def overview(_request: Request) -> Response:
        return json_response(_overview(await view.operations.status()))

    async def nodes(_request: Request) -> Response:
        status = await view.operations.status()
        return json_response(ClusterNodes(nodes=[_node(each) for each in status.nodes]))

    async def partitions(request: Request) -> Response:
        found = await _partitions(view.operations, request.query_params.get("topic"))
        return json_response(ClusterPartitions(partitions=found))

    return [
        Endpoint(
            path="/v1/cluster",
            name="cluster",
            summary="The whole cluster at a glance",
            description="Nodes, and the partitions that need attention.",
            answers={200: Answer(meaning="As this node sees it.", body=ClusterOverview)},
            call=overview,
        ),
        Endpoint(
            path="/v1/cluster/nodes",
            name="cluster-nodes",
            summary="All nodes of the cluster",
            description="With their addresses and what they carry.",
            answers={200: Answer(meaning="As this node sees it.", body=ClusterNodes)},
            call=nodes,
        ),
        Endpoint(
            path="/v1/cluster/partitions",
            name="cluster-partitions",
            summary="Partitions and their replicas",
            description="The leaders are asked, so lag and traffic are those of this moment.",
            parameters=(
                Parameter(
                    name="topic", type="string", place="query", meaning="Only those of this topic."
                ),
            ),
            answers={
                200: Answer(meaning="In the order of topic and number.", body=ClusterPartitions),
                404: FAILURES[404],
            },
            call=partitions,
        ),
    ]


def _changing_partitions(view: NodeView) -> list[Endpoint]:
    async def move(request: Request) -> Response:
        place = _place(request)
        wanted = await read_body(request, MoveRequest)
        await view.operations.move(place, wanted.nodes)
        return _accepted(place)

    async def cancel_move(request: Request) -> Response:
        place = _place(request)
        await view.operations.cancel_move(place)
        return _accepted(place)

    async def transfer_leader(request: Request) -> Response:
        place = _place(request)
        wanted = await read_body(request, TransferRequest)
        await view.operations.transfer_leader(place, wanted.to)
        return _accepted(place)

    path = "/v1/cluster/partitions/{topic}/{partition}"
    begun = Answer(meaning="The change has begun.", body=PartitionAccepted)
    return [
        Endpoint(
            method="POST",
            path=f"{path}/move",
            name="move-partition",
            summary="Let other nodes replicate a partition",
            description="Newcomers are filled before anyone leaves, so the partition stays"
            " available and keeps its number of replicas. The first node is meant to lead.",
            parameters=(TOPIC, _PARTITION),
            body=MoveRequest,
            example='{"nodes": [1, 2, 4]}',
            answers={202: begun, **FAILURES},
            call=from_here(move),
        ),
        Endpoint(
            method="POST",
            path=f"{path}/cancel-move",
            name="cancel-move",
            summary="Return to the replicas from before a move",
            description="Only while the move is not finished.",
            parameters=(TOPIC, _PARTITION),
            answers={202: begun, **FAILURES},
            call=from_here(cancel_move),
        ),
        Endpoint(
            method="POST",
            path=f"{path}/transfer-leader",
            name="transfer-leader",
            summary="Let another replica lead a partition",
            description="The replica is brought up to date first. A transfer that does not succeed"
            " within an election timeout is given up, and the old leader goes on.",
            parameters=(TOPIC, _PARTITION),
            body=TransferRequest,
            example='{"to": 2}',
            answers={202: begun, **FAILURES},
            call=from_here(transfer_leader),
        ),
    ]


def _draining(view: NodeView) -> list[Endpoint]:
    async def drain(request: Request) -> Response:
        node_id = read_number(request, "node_id")
        wanted = await read_body(request, DrainRequest)
        logs = await view.operations.drain(node_id, may_shrink=wanted.shrink)
        return json_response(DrainAccepted(node_id=node_id, logs=logs), status=202)

    async def end_drain(request: Request) -> Response:
        node_id = read_number(request, "node_id")
        await view.operations.end_drain(node_id)
        return json_response(NodeAccepted(node_id=node_id))

    return [
        Endpoint(
            method="POST",
            path="/v1/cluster/nodes/{node_id}/drain",
            name="drain-node",
            summary="Move everything off a node",
            description="Nothing new is placed there. When its `logs` are 0, the node can be"
            " removed. Refused when replicas have nowhere to go, unless `shrink` is true.",
            parameters=(_NODE,),
            body=DrainRequest,
            example="{}",
            answers={
                202: Answer(meaning="The moves have begun.", body=DrainAccepted),
                **FAILURES,
            },
            call=from_here(drain),
        ),
        Endpoint(
            method="POST",
            path="/v1/cluster/nodes/{node_id}/end-drain",
            name="end-drain",
            summary="Let a node take replicas again",
            description="What has moved away stays there.",
            parameters=(_NODE,),
            answers={200: _NODE_DONE, **FAILURES},
            call=from_here(end_drain),
        ),
    ]


def _changing_all(view: NodeView) -> list[Endpoint]:
    async def remove(request: Request) -> Response:
        node_id = read_number(request, "node_id")
        await view.operations.remove_node(node_id)
        return json_response(NodeAccepted(node_id=node_id))

    async def balance(_request: Request) -> Response:
        changes = await view.operations.balance()
        return json_response(BalanceAccepted(changes=changes), status=202)

    return [
        Endpoint(
            method="DELETE",
            path="/v1/cluster/nodes/{node_id}",
            name="remove-node",
            summary="Forget a node",
            description="Refused while it replicates anything: drain it first. Stop its process, or"
            " it joins again at its next start.",
            parameters=(_NODE,),
            answers={200: _NODE_DONE, **FAILURES},
            call=from_here(remove),
        ),
        Endpoint(
            method="POST",
            path="/v1/cluster/balance",
            name="balance-cluster",
            summary="Spread the work over the nodes",
            description="Replicas move from nodes that have more to nodes that have fewer, and"
            " every partition is led by the first of its replicas where that one is in step. Ask"
            " again when the moves are done, so that newcomers lead their share.",
            answers={
                202: Answer(meaning="What is done.", body=BalanceAccepted),
                503: FAILURES[503],
            },
            call=from_here(balance),
        ),
    ]


def _place(request: Request) -> TopicPartition:
    return TopicPartition(request.path_params["topic"], read_number(request, "partition"))


def _accepted(place: TopicPartition) -> Response:
    body = PartitionAccepted(topic=place.topic, partition=place.partition)
    return json_response(body, status=202)


def _overview(status: ClusterStatus) -> ClusterOverview:
    return ClusterOverview(
        cluster_id=status.cluster_id,
        asked_node=status.asked_node,
        metadata_leader=_known(status.metadata_leader),
        nodes=[_node(each) for each in status.nodes],
        topics=status.topics,
        partitions=status.partitions,
        without_leader=status.without_leader,
        behind=status.behind,
        changing=status.changing,
        hot=status.hot,
    )


def _node(status: NodeStatus) -> ClusterNode:
    node = status.node
    return ClusterNode(
        node_id=node.node_id,
        reachable=status.is_reachable,
        answered=status.has_answered,
        draining=status.is_draining,
        leads=status.leads,
        replicas=status.replicas,
        logs=status.logs,
        kafka=_address(node.kafka_host, node.kafka_port),
        peer=_address(node.peer_host, node.peer_port),
        http_port=node.http_port,
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _partitions(operations: OperationsView, topic: str | None) -> list[ClusterPartition]:
    found = await operations.partitions()
    hot = {(each.topic, each.partition) for each in hot_partitions(found)}
    if topic is not None:
        found = [each for each in found if each.topic == topic]
        if not found:
            raise TopicNotFound(f"there is no topic {topic!r}")
    return [_partition(each, is_hot=(each.topic, each.partition) in hot) for each in found]


def _partition(status: PartitionStatus, *, is_hot: bool) -> ClusterPartition:
    return ClusterPartition(
        topic=status.topic,
        partition=status.partition,
        leader=_known(status.leader),
        term=_known(status.term),
        nodes=status.replicas,
        leaving=status.leaving,
        changing=status.is_changing,
        queued=status.is_queued,
        hot=is_hot,
        start_offset=_known(status.start_offset),
        high_watermark=_known(status.high_watermark),
        size_bytes=_known(status.size_bytes),
        bytes_in_per_s=round(status.bytes_in_per_s, 1),
        replicas=_replicas(status),
    )


def _replicas(status: PartitionStatus) -> list[ClusterReplica]:
    if status.leader < 0:
        return []
    leader = ClusterReplica(node_id=status.leader, role="leader", in_step=True, lag_entries=0)
    others = [
        ClusterReplica(
            node_id=each.node,
            role="voter" if each.is_voter else "learner",
            in_step=each.is_in_step,
            lag_entries=each.lag_entries,
        )
        for each in status.followers
    ]
    return sorted([leader, *others], key=lambda each: each.node_id)


def _known(value: int) -> int | None:
    """Return None for the -1 that stands for what nobody knows."""
    return None if value < 0 else value

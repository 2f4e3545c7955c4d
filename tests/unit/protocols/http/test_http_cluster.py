"""`/v1/cluster`: what operators read and send, over a node that notes what it is asked."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from penstock.broker import ClusterStatus, NodeStatus, PartitionStatus, Statistics
from penstock.cluster import Node, ReplicaStatus
from penstock.errors import Conflict, PenstockError, Unavailable
from penstock.ids import TopicPartition
from penstock.protocols.http import CheckView, create_app

PATH = "/v1/cluster/partitions/orders/0"


def partition(number: int, **changes: Any) -> PartitionStatus:
    """Return a partition of three replicas that is led by node 1."""
    values: dict[str, Any] = {
        "topic": "orders",
        "partition": number,
        "group": 10_000 + number,
        "leader": 1,
        "term": 4,
        "replicas": [1, 2, 4],
        "leaving": [3],
        "is_changing": True,
        "is_queued": True,
        "start_offset": 0,
        "high_watermark": 100,
        "size_bytes": 5_000,
        "bytes_in_per_s": 10.04,
        "followers": [ReplicaStatus(4, False, True, 70), ReplicaStatus(2, True, True, 0)],
    }
    return PartitionStatus(**{**values, **changes})


@dataclass
class FakeOperations:
    """An `OperationsView` that notes every change, or fails with `error`."""

    found: list[PartitionStatus] = field(default_factory=lambda: [partition(0)])
    error: PenstockError | None = None
    asked: list[tuple[object, ...]] = field(default_factory=list)

    def note(self, *words: object) -> None:
        if self.error is not None:
            raise self.error
        self.asked.append(words)

    async def status(self) -> ClusterStatus:
        if self.error is not None:
            raise self.error
        node = Node(1, 77, "::1", 9191, "queue-1", 9092, 8080)
        return ClusterStatus(
            cluster_id="c",
            asked_node=1,
            metadata_leader=-1,
            nodes=[NodeStatus(node, True, True, False, 2, 3, 11)],
            topics=1,
            partitions=6,
            without_leader=["orders-1"],
            behind=[],
            changing=["orders-0"],
            hot=[],
        )

    async def partitions(self) -> list[PartitionStatus]:
        return self.found

    async def move(self, place: TopicPartition, nodes: list[int]) -> None:
        self.note("move", place, nodes)

    async def cancel_move(self, place: TopicPartition) -> None:
        self.note("cancel_move", place)

    async def transfer_leader(self, place: TopicPartition, to: int) -> None:
        self.note("transfer_leader", place, to)

    async def drain(self, node_id: int, *, may_shrink: bool) -> int:
        self.note("drain", node_id, may_shrink)
        return 11

    async def end_drain(self, node_id: int) -> None:
        self.note("end_drain", node_id)

    async def remove_node(self, node_id: int) -> None:
        self.note("remove_node", node_id)

    async def balance(self) -> list[str]:
        self.note("balance")
        return ["orders-0: node 2 to node 1"]


@dataclass
class FakeNode:
    """A `NodeView` of which only the operations matter."""

    operations: FakeOperations = field(default_factory=FakeOperations)
    node_id: int = 1
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    statistics: Statistics = field(default_factory=Statistics)

    def uptime_s(self) -> float:
        return 1.0

    def checks(self) -> Sequence[CheckView]:
        return []


def ask(
    node: FakeNode,
    path: str,
    *,
    method: str = "GET",
    body: str = "",
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(node), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://node:8080") as client:
            return await client.request(method, path, content=body, headers=headers)

    return asyncio.run(send())


def test_the_cluster_is_shown_at_a_glance() -> None:
    answer = ask(FakeNode(), "/v1/cluster").json()

    assert answer["metadata_leader"] is None
    assert answer["without_leader"] == ["orders-1"]
    assert answer["nodes"] == ask(FakeNode(), "/v1/cluster/nodes").json()["nodes"]
    assert answer["nodes"] == [
        {
            "node_id": 1,
            "reachable": True,
            "answered": True,
            "draining": False,
            "leads": 2,
            "replicas": 3,
            "logs": 11,
            "kafka": "queue-1:9092",
            "peer": "[::1]:9191",
            "http_port": 8080,
        }
    ]


def test_a_partition_is_shown_with_the_lag_of_its_learners() -> None:
    (shown,) = ask(FakeNode(), "/v1/cluster/partitions").json()["partitions"]

    assert (shown["leader"], shown["nodes"], shown["leaving"]) == (1, [1, 2, 4], [3])
    assert shown["bytes_in_per_s"] == 10.0
    assert shown["replicas"] == [
        {"node_id": 1, "role": "leader", "in_step": True, "lag_entries": 0},
        {"node_id": 2, "role": "voter", "in_step": True, "lag_entries": 0},
        {"node_id": 4, "role": "learner", "in_step": True, "lag_entries": 70},
    ]


def test_what_nobody_knows_is_null() -> None:
    unled = partition(0, leader=-1, term=-1, start_offset=-1, high_watermark=-1, size_bytes=-1)

    node = FakeNode(FakeOperations([unled]))
    (shown,) = ask(node, "/v1/cluster/partitions").json()["partitions"]

    assert [shown[name] for name in ("leader", "term", "high_watermark", "size_bytes")] == [
        None
    ] * 4
    assert shown["replicas"] == []


def test_a_partition_is_hot_among_all_partitions_and_not_only_among_those_shown() -> None:
    others = [partition(each, topic="quiet", bytes_in_per_s=1.0) for each in range(5)]
    node = FakeNode(FakeOperations([*others, partition(0, bytes_in_per_s=100.0)]))

    (shown,) = ask(node, "/v1/cluster/partitions?topic=orders").json()["partitions"]

    assert shown["hot"] is True


def test_partitions_of_a_topic_that_is_not_there_are_not_found() -> None:
    answer = ask(FakeNode(), "/v1/cluster/partitions?topic=nothing")

    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "TopicNotFound"
    assert "'nothing'" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "asked"),
    [
        ("POST", f"{PATH}/move", '{"nodes": [1, 4]}', 202, ("move", ("orders", 0), [1, 4])),
        ("POST", f"{PATH}/cancel-move", "", 202, ("cancel_move", ("orders", 0))),
        (
            "POST",
            f"{PATH}/transfer-leader",
            '{"to": 2}',
            202,
            ("transfer_leader", ("orders", 0), 2),
        ),
        ("POST", "/v1/cluster/nodes/3/drain", "", 202, ("drain", 3, False)),
        ("POST", "/v1/cluster/nodes/3/drain", '{"shrink": true}', 202, ("drain", 3, True)),
        ("POST", "/v1/cluster/nodes/3/end-drain", "", 200, ("end_drain", 3)),
        ("DELETE", "/v1/cluster/nodes/3", "", 200, ("remove_node", 3)),
        ("POST", "/v1/cluster/balance", "", 202, ("balance",)),
    ],
)
def test_a_change_is_handed_on(
    method: str, path: str, body: str, status: int, asked: tuple[object, ...]
) -> None:
    node = FakeNode()

    answer = ask(node, path, method=method, body=body)

    assert answer.status_code == status, answer.text
    assert node.operations.asked == [asked]


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/cluster/partitions/orders/x/move", "{}", "partition is 'x', not a whole number"),
        ("/v1/cluster/partitions/orders/-1/move", "{}", "partition is '-1', not a whole number"),
        (f"/v1/cluster/nodes/{'9' * 5000}/drain", "", "not a whole number in 0..2147483647"),
        (f"{PATH}/move", "", "missing required field `nodes`"),
        (f"{PATH}/move", "nodes=1", "the body is 'nodes=1'"),
        (f"{PATH}/move", '{"nodes": "1"}', "Expected `array`, got `str` - at `$.nodes`"),
        (f"{PATH}/move", '{"nodes": [1], "node": 2}', "unknown field `node`"),
        (f"{PATH}/move", '{"nodes": [' + "1," * 60_000 + "1]}", "larger than 65536 bytes"),
        (f"{PATH}/transfer-leader", '{"to": 2.5}', "Expected `int`"),
    ],
)
def test_bad_input_is_refused_with_its_value_and_changes_nothing(
    path: str, body: str, told: str
) -> None:
    node = FakeNode()

    answer = ask(node, path, method="POST", body=body)

    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]
    assert answer.json()["error"]["retryable"] is False
    assert node.operations.asked == []


def test_a_cluster_without_a_leader_asks_to_try_again() -> None:
    node = FakeNode(FakeOperations(error=Unavailable("the metadata has no leader")))

    answers = [ask(node, "/v1/cluster"), ask(node, "/v1/cluster/balance", method="POST")]

    assert [answer.status_code for answer in answers] == [503, 503]
    assert answers[0].json()["error"]["retryable"] is True


def test_a_conflict_is_told_as_one() -> None:
    node = FakeNode(FakeOperations(error=Conflict("node 3 still replicates 2 logs")))

    assert ask(node, "/v1/cluster/nodes/3", method="DELETE").status_code == 409


@pytest.mark.parametrize(
    ("origin", "status"), [("http://evil.example", 403), ("null", 403), ("http://node:8080", 202)]
)
def test_a_page_of_another_site_changes_nothing(origin: str, status: int) -> None:
    node = FakeNode()

    answer = ask(node, "/v1/cluster/balance", method="POST", headers={"Origin": origin})

    assert answer.status_code == status
    assert (node.operations.asked == []) is (status == 403)


def test_the_openapi_document_tells_parameters_and_bodies() -> None:
    response = ask(FakeNode(), "/openapi.json")
    document = response.json()

    for name in re.findall(r"#/components/schemas/(\w+)", response.text):
        assert name in document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            told = {each["name"] for each in operation.get("parameters", []) if each["required"]}
            assert told == set(re.findall(r"{(\w+)}", path))
    move = document["paths"]["/v1/cluster/partitions/{topic}/{partition}/move"]["post"]
    drain = document["paths"]["/v1/cluster/nodes/{node_id}/drain"]["post"]
    assert move["requestBody"]["required"] is True
    assert drain["requestBody"]["required"] is False
    assert {"202", "400", "404", "409", "503", "default"} == move["responses"].keys()


def test_the_page_for_people_shows_how_to_send_a_body() -> None:
    page = ask(FakeNode(), "/docs").text

    assert "curl -X DELETE http://localhost:8080/v1/cluster/nodes/{node_id}" in page
    assert json.dumps({"nodes": [1, 2, 4]}).replace('"', "&quot;") in page

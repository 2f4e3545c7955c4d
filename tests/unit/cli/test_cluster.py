"""What `penstock cluster` prints, on a cluster that is made up."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import cluster
from penstock.cli.main import app
from penstock.client import ClusterNode, ClusterOverview, ClusterPartition, ClusterReplica
from penstock.errors import Conflict, Unavailable


def node(node_id: int, **changes: object) -> ClusterNode:
    about = ClusterNode(
        node_id=node_id,
        reachable=True,
        answered=True,
        draining=False,
        leads=1,
        replicas=2,
        logs=10,
        kafka=f"queue-{node_id}:9092",
        peer=f"queue-{node_id}:9191",
        http_port=8080,
    )
    return replace(about, **changes)  # type: ignore[arg-type]


def replica(node_id: int, role: str = "voter", **changes: object) -> ClusterReplica:
    about = ClusterReplica(
        node_id=node_id,
        role=role,  # type: ignore[arg-type]
        in_step=True,
        lag_entries=0,
    )
    return replace(about, **changes)  # type: ignore[arg-type]


SETTLED = ClusterPartition(
    topic="orders",
    partition=0,
    leader=1,
    term=3,
    nodes=(1, 2, 4),
    leaving=(),
    changing=False,
    queued=False,
    hot=False,
    start_offset=0,
    high_watermark=500,
    size_bytes=64_000,
    bytes_in_per_s=12.6,
    replicas=(replica(1, "leader"), replica(2), replica(4)),
)
MOVING = replace(
    SETTLED,
    leaving=(3,),
    changing=True,
    replicas=(replica(1, "leader"), replica(2), replica(4, "learner", lag_entries=70)),
)
NODES = (node(1), node(2), node(3, draining=True))


@dataclass
class FakeCluster:
    """A `ClusterAdmin` that notes every change and shows one state after the other."""

    nodes_seen: list[tuple[ClusterNode, ...]] = field(default_factory=lambda: [NODES])
    partitions_seen: list[tuple[ClusterPartition, ...]] = field(default_factory=lambda: [(MOVING,)])
    attention: dict[str, tuple[str, ...]] = field(default_factory=dict)
    asked: list[tuple[object, ...]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def overview(self) -> ClusterOverview:
        nothing: tuple[str, ...] = ()
        return ClusterOverview(
            cluster_id="c-1",
            asked_node=2,
            metadata_leader=1,
            nodes=self.nodes(),
            topics=1,
            partitions=6,
            without_leader=self.attention.get("without_leader", nothing),
            behind=self.attention.get("behind", nothing),
            changing=self.attention.get("changing", nothing),
            hot=self.attention.get("hot", nothing),
        )

    def nodes(self) -> tuple[ClusterNode, ...]:
        return self.nodes_seen.pop(0) if len(self.nodes_seen) > 1 else self.nodes_seen[0]

    def partitions(self, topic: str | None = None) -> tuple[ClusterPartition, ...]:
        if self.failures:
            raise self.failures.pop(0)
        seen = self.partitions_seen
        return seen.pop(0) if len(seen) > 1 else seen[0]

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name not in {"move", "cancel_move", "transfer_leader", "end_drain", "remove_node"}:
            raise AttributeError(name)
        return lambda *args: self.asked.append((name, *args))

    def drain(self, node_id: int, *, shrink: bool) -> int:
        self.asked.append(("drain", node_id, shrink))
        return 10

    def balance(self) -> tuple[str, ...]:
        return ("orders-0: node 2 to node 1",)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    monkeypatch.setattr(cluster, "open_cluster", lambda _url: made)
    monkeypatch.setattr("penstock.cli.waiting.LOOK_AGAIN_S", 0.0)
    return made


def run(*args: str) -> Result:
    return CliRunner().invoke(app, ["cluster", *args], env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_status_shows_nodes_and_says_that_all_is_well(fake: FakeCluster) -> None:
    text = run("status").stdout

    assert text.startswith("Cluster c-1: 3 nodes, 1 topic, 6 partitions; metadata: node 1 leads;")
    assert "All partitions have a leader and all their replicas are in step." in text


def test_status_names_what_needs_attention(fake: FakeCluster) -> None:
    fake.nodes_seen = [(node(1), node(2, reachable=False, answered=False), node(3, answered=False))]
    fake.attention = {"without_leader": ("orders-1",), "hot": ("orders-2", "orders-3")}

    lines = run("status").stdout.splitlines()

    assert "Nodes out of reach: 2" in lines
    assert "Nodes that did not answer, so what they lead is unknown: 3" in lines
    assert "Without a leader: orders-1" in lines
    assert "Hot, over three times the mean traffic: orders-2, orders-3" in lines


def test_nodes_tell_their_state_and_addresses(fake: FakeCluster) -> None:
    fake.nodes_seen = [(node(1), node(3, draining=True), node(4, draining=True, logs=0))]

    rows = [" ".join(line.split()) for line in run("nodes").stdout.splitlines()[2:]]

    assert rows == [
        "1 up 1 2 10 queue-1:9092 queue-1:9191 8080",
        "3 up, draining 1 2 10 queue-3:9092 queue-3:9191 8080",
        "4 up, drained 1 2 0 queue-4:9092 queue-4:9191 8080",
    ]


def test_partitions_tell_the_lag_of_replicas(fake: FakeCluster) -> None:
    lost = replace(
        SETTLED,
        partition=1,
        replicas=(replica(1, "leader"), replica(2, in_step=False, lag_entries=9)),
    )
    unled = replace(
        SETTLED, partition=2, leader=None, high_watermark=None, size_bytes=None, replicas=()
    )
    queued = replace(SETTLED, partition=3, changing=True, queued=True)
    fake.partitions_seen = [(MOVING, lost, unled, queued)]

    rows = [" ".join(line.split()) for line in run("partitions", "orders").stdout.splitlines()[2:]]

    assert rows == [
        "orders 0 1 1, 2, 4 1, 2, 4 (learns, lacks 70) 500 64000 13 moving",
        "orders 1 1 1, 2, 4 1, 2 (lost, lacks 9) 500 64000 13 behind",
        "orders 2 - 1, 2, 4 - - - 13 no leader",
        "orders 3 1 1, 2, 4 1, 2, 4 500 64000 13 waiting to move",
    ]


def test_programs_get_json(fake: FakeCluster) -> None:
    assert json.loads(run("status", "--json").stdout)["metadata_leader"] == 1
    assert json.loads(run("nodes", "--json").stdout)[0]["peer"] == "queue-1:9191"
    shown = json.loads(run("partitions", "--json").stdout)
    assert shown[0]["replicas"][2] == {
        "node_id": 4,
        "role": "learner",
        "in_step": True,
        "lag_entries": 70,
    }


def test_move_begins_and_returns(fake: FakeCluster) -> None:
    result = run("move", "orders", "0", "--to", "1, 2,4")

    assert fake.asked == [("move", "orders", 0, [1, 2, 4])]
    assert result.stdout == "orders-0 is being moved to nodes 1, 2, 4.\n"


def test_move_waits_over_a_moment_without_an_answer(fake: FakeCluster) -> None:
    fake.failures = [Unavailable("node 2 cannot be reached")]
    fake.partitions_seen = [(MOVING,), (SETTLED,)]

    result = run("move", "orders", "0", "--to", "1,2,4", "--wait")

    assert result.exit_code == 0
    assert result.stdout == "orders-0 is on nodes 1, 2, 4.\n"
    assert "node 2 cannot be reached" in result.stderr


def test_a_wait_that_takes_too_long_says_what_it_waits_for_and_exits_with_3(
    fake: FakeCluster,
) -> None:
    result = run("move", "orders", "0", "--to", "1,2,4", "--wait", "--timeout", "0")

    assert result.exit_code == 3
    assert "and going on: orders-0: node 4 lacks 70 entries" in result.stderr


def test_a_move_that_waits_for_others_says_so(fake: FakeCluster) -> None:
    fake.partitions_seen = [(replace(MOVING, queued=True),)]

    result = run("move", "orders", "0", "--to", "1,2,4", "--wait", "--timeout", "0")

    assert "orders-0: waits for other moves to its nodes" in result.stderr


def test_a_move_that_another_one_replaced_is_not_waited_for(fake: FakeCluster) -> None:
    result = run("move", "orders", "0", "--to", "1,2,5", "--wait")

    assert result.exit_code == 1
    assert "is to be on nodes 1, 2, 4 by now, not on 1, 2, 5" in result.stderr


def test_drain_waits_until_nothing_is_left(fake: FakeCluster) -> None:
    fake.nodes_seen = [NODES, (node(1), node(2), node(3, draining=True, logs=0))]

    result = run("drain", "3", "--wait")

    assert fake.asked == [("drain", 3, False)]
    assert result.stdout == "Node 3 is drained, 10 logs in all.\n"
    assert "node 3: 10 logs left; orders-0: node 4 lacks 70 entries" in result.stderr


def test_a_drain_that_was_ended_is_not_waited_for(fake: FakeCluster) -> None:
    fake.nodes_seen = [(node(3),)]

    assert "node 3 is not being drained any more" in run("drain", "3", "--wait").stderr


def test_a_partition_that_is_to_stay_on_the_drained_node_is_not_waited_for(
    fake: FakeCluster,
) -> None:
    fake.partitions_seen = [(MOVING,), (replace(SETTLED, nodes=(1, 2, 3)),)]

    result = run("drain", "3", "--wait", "--timeout", "5s")

    assert result.exit_code == 1
    assert "orders-0 is to be on nodes 1, 2, 3 by now: another change came after" in result.stderr


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        (("cancel-move", "orders", "0"), ("cancel_move", "orders", 0)),
        (("transfer-leader", "orders", "0", "--to", "2"), ("transfer_leader", "orders", 0, 2)),
        (("drain", "3", "--shrink"), ("drain", 3, True)),
        (("end-drain", "3"), ("end_drain", 3)),
        (("remove-node", "3", "--yes"), ("remove_node", 3)),
    ],
)
def test_a_change_is_asked_for(
    fake: FakeCluster, args: tuple[str, ...], asked: tuple[object, ...]
) -> None:
    result = run(*args)

    assert result.exit_code == 0, result.stderr
    assert fake.asked == [asked]


def test_balance_tells_what_is_done(fake: FakeCluster) -> None:
    assert run("balance").stdout == "orders-0: node 2 to node 1\n"


def test_add_node_shows_the_command_with_the_address_of_a_node_that_is_up(
    fake: FakeCluster,
) -> None:
    fake.nodes_seen = [(node(1, reachable=False), node(2), node(3))]

    told, as_json = run("add-node"), run("add-node", "--json")

    assert "  penstock serve --node-id 4 --join queue-2:9191 --host 0.0.0.0" in told.stdout
    assert "reached from this machine alone" not in told.stdout
    assert len(told.stdout.splitlines()) < 24
    assert json.loads(as_json.stdout)["join"] == "queue-2:9191"


def test_add_node_warns_of_an_address_that_no_other_machine_reaches(fake: FakeCluster) -> None:
    fake.nodes_seen = [(node(1, peer="127.0.0.1:9191"),)]

    assert "127.0.0.1:9191 can be reached from this machine alone" in run("add-node").stdout


def test_add_node_refuses_a_number_that_is_taken(fake: FakeCluster) -> None:
    result = run("add-node", "--node-id", "2")

    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 1
    assert "there is a node 2 already; the nodes are [1, 2, 3]" in result.stderr


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("move", "orders", "0", "--to", "1,x"), "'1,x' is not NODE,NODE"),
        (("move", "orders", "0", "--to", ""), "'' is not NODE,NODE"),
        (("move", "orders", "x", "--to", "1"), "PARTITION"),
        (("move", "orders", "0"), "--to"),
        (("drain", "3", "--timeout", "soon"), "'soon' is not a value like 5s"),
    ],
)
def test_a_mistyped_command_exits_with_2(
    fake: FakeCluster, args: tuple[str, ...], told: str
) -> None:
    result = run(*args)

    assert result.exit_code == 2
    assert told in result.stderr
    assert fake.asked == []


def test_a_refusal_of_the_node_is_told_with_exit_code_1(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: FakeCluster) -> tuple[str, ...]:
        raise Conflict("orders-0 is not being moved")

    monkeypatch.setattr(FakeCluster, "balance", refuse)

    assert run("balance").exit_code == 1

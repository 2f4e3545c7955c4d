"""`penstock cluster`: see the cluster, move partitions, add, drain and remove nodes."""

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.connection import open_cluster
from penstock.cli.options import Json, TopicName, Url
from penstock.cli.output import Grid, Output
from penstock.cli.waiting import Progress, look_at_drain, look_at_move, wait_for
from penstock.config import parse_duration_ms
from penstock.errors import Conflict

if TYPE_CHECKING:
    from penstock.client import ClusterNode, ClusterOverview, ClusterPartition, ClusterReplica

app = typer.Typer(
    help="See a cluster and operate it while it runs, through any of its nodes.",
    no_args_is_help=True,
)

PartitionNumber = Annotated[
    int, typer.Argument(metavar="PARTITION", min=0, show_default=False, help="Its number, from 0.")
]
NodeNumber = Annotated[int, typer.Argument(metavar="NODE", min=0, show_default=False)]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it is done.")]
Timeout = Annotated[
    str,
    typer.Option("--timeout", metavar="TIME", help="Longest wait; the change goes on after it."),
]
TIMEOUT_DEFAULT = "10m"


@app.command()
def status(url: Url = URL_DEFAULT, as_json: Json = False) -> None:
    """Show the cluster at a glance, and what needs attention."""
    overview = open_cluster(url).overview()
    Output(as_json=as_json).show(
        overview, _headline(overview), _nodes(overview.nodes), *_notes(overview)
    )


def _headline(overview: "ClusterOverview") -> str:
    leader = overview.metadata_leader
    led = "no leader" if leader is None else f"node {leader} leads"
    return (
        f"Cluster {overview.cluster_id}: {_count(len(overview.nodes), 'node')},"
        f" {_count(overview.topics, 'topic')}, {_count(overview.partitions, 'partition')};"
        f" metadata: {led}; asked node {overview.asked_node}."
    )


def _notes(overview: "ClusterOverview") -> list[str]:
    away = [str(each.node_id) for each in overview.nodes if not each.reachable]
    silent = [str(each.node_id) for each in overview.nodes if each.reachable and not each.answered]
    notes = [
        f"{heading}: {', '.join(names)}"
        for heading, names in (
            ("Nodes out of reach", away),
            ("Nodes that did not answer, so what they lead is unknown", silent),
            ("Without a leader", overview.without_leader),
            ("With a replica out of step", overview.behind),
            ("Being moved", overview.changing),
            ("Hot, over three times the mean traffic", overview.hot),
        )
        if names
    ]
    return notes or ["All partitions have a leader and all their replicas are in step."]


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


@app.command()
def nodes(url: Url = URL_DEFAULT, as_json: Json = False) -> None:
    """List the nodes, their addresses and what they carry."""
    found = open_cluster(url).nodes()
    Output(as_json=as_json).show(found, _nodes(found))


def _nodes(found: "Sequence[ClusterNode]") -> Grid:
    columns = ("node", "state", "leads", "partitions", "logs", "kafka", "peer", "http port")
    rows = [
        (
            each.node_id,
            _state(each),
            each.leads,
            each.replicas,
            each.logs,
            each.kafka,
            each.peer,
            each.http_port,
        )
        for each in found
    ]
    return Grid(columns, rows)


def _state(node: "ClusterNode") -> str:
    state = "up" if node.answered else "no answer" if node.reachable else "out of reach"
    if node.draining:
        return f"{state}, {'drained' if node.logs == 0 else 'draining'}"
    return state


@app.command()
def partitions(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", show_default="all topics")
    ] = None,
    *,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """List partitions with their leaders, replicas, lag and traffic."""
    found = open_cluster(url).partitions(topic)
    shown = _partitions(found) if found else "There are no partitions."
    Output(as_json=as_json).show(found, shown)


def _partitions(found: "Sequence[ClusterPartition]") -> Grid:
    columns = (
        "topic",
        "partition",
        "leader",
        "nodes",
        "replicas",
        "end",
        "bytes",
        "bytes/s",
        "state",
    )
    rows = [
        (
            each.topic,
            each.partition,
            each.leader,
            ", ".join(map(str, each.nodes)),
            ", ".join(_replica(replica) for replica in each.replicas) or None,
            each.high_watermark,
            each.size_bytes,
            round(each.bytes_in_per_s),
            _partition_state(each),
        )
        for each in found
    ]
    return Grid(columns, rows)


def _replica(replica: "ClusterReplica") -> str:
    if replica.role == "leader":
        return str(replica.node_id)
    if replica.role == "learner":
        return f"{replica.node_id} (learns, lacks {replica.lag_entries})"
    if not replica.in_step:
        return f"{replica.node_id} (lost, lacks {replica.lag_entries})"
    return f"{replica.node_id}" + (f" (-{replica.lag_entries})" if replica.lag_entries else "")


def _partition_state(partition: "ClusterPartition") -> str:
    if partition.leader is None:
        return "no leader"
    words = []
    if partition.changing:
        words.append("waiting to move" if partition.queued else "moving")
    words += ["hot"] if partition.hot else []
    if any(each.role == "voter" and not each.in_step for each in partition.replicas):
        words.append("behind")
    return ", ".join(words) or "ok"


@app.command()
def move(
    topic: TopicName,
    partition: PartitionNumber,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="NODE,...",
            show_default=False,
            help="All nodes that are to replicate it; the first is meant to lead.",
        ),
    ],
    wait: Wait = False,
    timeout: Timeout = TIMEOUT_DEFAULT,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Let other nodes replicate a partition.

    Newcomers are filled before anyone leaves; clients go on meanwhile.
    """
    wanted = _read_nodes(to)
    timeout_ms = _read_timeout_ms(timeout)
    cluster = open_cluster(url)
    cluster.move(topic, partition, wanted)
    if wait:
        with Progress(is_silent=as_json) as progress:
            wait_for(
                lambda: look_at_move(cluster.partitions(topic), partition, wanted),
                timeout_ms=timeout_ms,
                progress=progress,
            )
    told = "is on" if wait else "is being moved to"
    listed = ", ".join(map(str, wanted))
    Output(as_json=as_json).show(
        {"topic": topic, "partition": partition, "nodes": wanted, "done": wait},
        f"{topic}-{partition} {told} nodes {listed}.",
    )


def _read_nodes(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise typer.BadParameter(f"{text!r} is not NODE,NODE,...", param_hint="--to")
    return [int(part) for part in parts]


def _read_timeout_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is {error}.", param_hint="--timeout") from None


@app.command("cancel-move")
def cancel_move(
    topic: TopicName,
    partition: PartitionNumber,
    *,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Return to the replicas from before a move that is not finished."""
    open_cluster(url).cancel_move(topic, partition)
    Output(as_json=as_json).show(
        {"topic": topic, "partition": partition},
        f"{topic}-{partition} returns to the nodes that it had before.",
    )


@app.command("transfer-leader")
def transfer_leader(
    topic: TopicName,
    partition: PartitionNumber,
    *,
    to: Annotated[
        int,
        typer.Option(
            "--to", metavar="NODE", min=0, show_default=False, help="A node that replicates it."
        ),
    ],
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Let another replica lead a partition."""
    open_cluster(url).transfer_leader(topic, partition, to)
    Output(as_json=as_json).show(
        {"topic": topic, "partition": partition, "to": to},
        f"{topic}-{partition} is being handed to node {to}.",
    )


@app.command()
def drain(
    node: NodeNumber,
    *,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink", help="Let logs end with fewer replicas where no node can take them."
        ),
    ] = False,
    wait: Wait = False,
    timeout: Timeout = TIMEOUT_DEFAULT,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Move everything off a node and place nothing new there."""
    timeout_ms = _read_timeout_ms(timeout)
    cluster = open_cluster(url)
    logs = cluster.drain(node, shrink=shrink)
    if wait:
        with Progress(is_silent=as_json) as progress:
            wait_for(
                lambda: look_at_drain(cluster.nodes(), cluster.partitions(), node),
                timeout_ms=timeout_ms,
                progress=progress,
            )
    told = "is drained" if wait else "is being drained"
    Output(as_json=as_json).show(
        {"node_id": node, "logs": logs, "done": wait},
        f"Node {node} {told}, {_count(logs, 'log')} in all.",
    )


@app.command("end-drain")
def end_drain(node: NodeNumber, *, url: Url = URL_DEFAULT, as_json: Json = False) -> None:
    """Let a node take replicas again; what has moved away stays there."""
    open_cluster(url).end_drain(node)
    Output(as_json=as_json).show({"node_id": node}, f"Node {node} takes replicas again.")


@app.command("remove-node")
def remove_node(
    node: NodeNumber,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask a person first.")] = False,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Forget a node that is drained. Asks first when a person types it."""
    if sys.stdin.isatty() and not yes:
        typer.confirm(f"Remove node {node} from the cluster?", abort=True, err=True)
    open_cluster(url).remove_node(node)
    Output(as_json=as_json).show(
        {"node_id": node},
        f"Node {node} is removed. Stop its process, or it joins again at its next start.",
    )


@app.command()
def balance(url: Url = URL_DEFAULT, as_json: Json = False) -> None:
    """Spread replicas and leaders over the nodes that can be reached.

    Consumer groups get up to three replicas, topics keep the number that they have.
    Nodes that were given replicas lead their share after a second balance, when they have caught
    up; `penstock cluster status` tells what is still being moved.
    """
    changes = open_cluster(url).balance()
    shown = changes or ("The cluster is balanced already.",)
    Output(as_json=as_json).show({"changes": changes}, *shown)


@app.command("add-node")
def add_node(
    node_id: Annotated[
        int | None,
        typer.Option("--node-id", min=0, show_default="the next free one", help="Its number."),
    ] = None,
    *,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show what to run on a new machine that is to join the cluster."""
    found = open_cluster(url).nodes()
    taken = {each.node_id for each in found}
    number = max(taken, default=0) + 1 if node_id is None else node_id
    if number in taken:
        raise Conflict(f"there is a node {number} already; the nodes are {sorted(taken)}")
    peers = [each.peer for each in found if each.reachable]
    command = ["penstock", "serve", "--node-id", str(number), "--join", peers[0]]
    command += ["--host", "0.0.0.0", "--data-dir", "./data"]  # noqa: S104 (shown, not bound)
    Output(as_json=as_json).show(
        {"node_id": number, "join": peers[0], "command": command},
        *_joining(shlex.join(command), number, peers),
    )


def _joining(command: str, number: int, peers: Sequence[str]) -> list[str]:
    lines = [
        "On the new machine, with Penstock installed and an empty data directory:",
        "",
        f"  {command}",
        "",
        f"It must reach {', '.join(peers)}, and they must reach it: on port 9191, or on",
        "--peer-port. Where its name does not lead to it, --peer-advertise and --advertise",
        "tell other nodes and clients what does.",
    ]
    if peers[0].startswith(("127.", "localhost", "[::1]")):
        lines += [
            "",
            f"{peers[0]} can be reached from this machine alone. A second node on it needs ports",
            "of its own: --kafka-port, --http-port, --peer-port, and --host 127.0.0.1.",
        ]
    return [
        *lines,
        "",
        f"Then `penstock cluster nodes` lists node {number}. New topics use it at once;",
        "`penstock cluster balance` gives it a share of the existing ones.",
    ]

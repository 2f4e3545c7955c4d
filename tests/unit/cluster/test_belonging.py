"""How a node finds out that it was removed from its cluster."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cluster.belonging import Belonging
from penstock.cluster.described import Node
from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import InvalidRequest
from penstock.ids import NodeId
from tests.unit.cluster.workplaces import run

OWN = NodeId(4)


class Peers:
    """Other nodes, each with the metadata that it has; None is one of an older version."""

    def __init__(self, **known: Belonging | None) -> None:
        self._known = {int(name.removeprefix("node_")): each for name, each in known.items()}
        self.connected = set(self._known)

    async def request(self, node: int, kind: int, body: bytes, *, timeout_s: float) -> bytes:
        del timeout_s
        peer = self._known[node]
        if peer is None:
            raise InvalidRequest(f"requests of kind {kind} are unknown to this node")
        return peer.answer(body)


def belonging(
    *nodes: int,
    applied_index: int,
    leader: int | None = None,
    links: Any = None,
    is_current: bool = True,
) -> Belonging:
    """What a node goes by that has applied the metadata up to an index and knows these nodes."""
    metadata = ClusterMetadata()
    metadata.is_current = is_current
    metadata.nodes = {node: Node(node, 1, "host", 9191, "host", 9092, 8080) for node in nodes}
    changes: Any = SimpleNamespace(log=SimpleNamespace(applied_index=applied_index, leader=leader))
    return Belonging(OWN, metadata, changes, links or Peers())


def is_removed(own: Belonging) -> bool:
    async def scene() -> bool:
        await own.look()
        return own.was_removed

    return run(scene())


KNOWS = belonging(1, 2, 4, applied_index=12)
HAS_SEEN_IT_GO = belonging(1, 2, applied_index=12)
LAGS_BEHIND = belonging(1, 2, applied_index=9)


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        (Peers(node_1=HAS_SEEN_IT_GO), True),
        (Peers(node_1=HAS_SEEN_IT_GO, node_2=LAGS_BEHIND, node_3=None), True),
        (Peers(node_1=KNOWS), False),
        (Peers(node_1=KNOWS, node_2=LAGS_BEHIND), False),
        (Peers(node_1=LAGS_BEHIND), False),
        (Peers(node_3=None), False),
        (Peers(), False),
    ],
)
def test_a_peer_that_is_as_far_and_does_not_know_a_node_has_seen_it_being_removed(
    peers: Peers, expected: bool
) -> None:
    own = belonging(1, 2, 4, applied_index=10, links=peers)

    assert is_removed(own) is expected


def test_a_node_that_hears_of_a_leader_belongs_to_its_cluster() -> None:
    peers = Peers(node_1=HAS_SEEN_IT_GO)

    assert not is_removed(belonging(1, 2, 4, applied_index=10, leader=1, links=peers))


def test_a_node_that_has_applied_its_own_removal_asks_nobody() -> None:
    assert is_removed(belonging(1, 2, applied_index=11, leader=1))


@pytest.mark.parametrize("nodes", [(), (1, 2), (1, 2, 4)])
def test_a_node_that_its_cluster_has_not_heard_since_it_started_was_not_removed(
    nodes: tuple[int, ...],
) -> None:
    peers = Peers(node_1=HAS_SEEN_IT_GO, node_2=belonging(applied_index=0))
    own = belonging(*nodes, applied_index=0, links=peers, is_current=False)

    assert not is_removed(own)

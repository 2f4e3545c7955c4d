"""Changes of the metadata by a node that others have to help."""

from typing import Any

import msgspec
import pytest

from penstock.cluster.changes import MetadataChanges
from penstock.cluster.commands import DrainNode
from penstock.cluster.described import Node
from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import Unavailable
from penstock.ids import NodeId
from tests.unit.cluster.workplaces import SimMachine, run


class Links:
    """Peers that carry out what they are asked for, and tell nothing else."""

    def __init__(self, *nodes: int) -> None:
        self.connected = {NodeId(node) for node in nodes}
        self.asked: list[int] = []

    async def request(self, node: int, kind: int, body: bytes, *, timeout_s: float) -> bytes:
        del kind, body, timeout_s
        self.asked.append(node)
        return msgspec.msgpack.encode({"applied_index": 100})


def changes_of_a_node_without_leader(links: Any) -> tuple[MetadataChanges, ClusterMetadata]:
    machine, metadata = SimMachine(), ClusterMetadata()
    changes = MetadataChanges(metadata, links, machine.workplace())
    changes.log = machine.open_log(metadata)
    return changes, metadata


def test_a_change_of_which_this_node_never_hears_is_not_waited_for_without_end() -> None:
    async def scene() -> None:
        changes, _ = changes_of_a_node_without_leader(Links(2))

        with pytest.raises(Unavailable, match="has not heard so"):
            await changes.change(DrainNode(2, True))

    run(scene())


def test_a_peer_that_was_removed_is_asked_last() -> None:
    async def scene() -> None:
        links = Links(2, 3)
        changes, metadata = changes_of_a_node_without_leader(links)
        metadata.nodes[3] = Node(3, 1, "three", 9191, "three", 9092, 8080)

        with pytest.raises(Unavailable):
            await changes.change(DrainNode(3, True))

        assert set(links.asked) == {3}

    run(scene())

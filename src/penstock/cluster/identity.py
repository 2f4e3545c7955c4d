"""Who a node is: its number, and the incarnation of its memory.

The incarnation is drawn when the data directory is made and lives as long as the directory. A node
that lost its disk comes back with another one and is a stranger to its groups, whatever its number:
it has forgotten its votes, so it must not vote again in their place.

A node can also be without the memory of a single group: the files of its replica were damaged, or
went when the replica was moved to another node. It then takes part in that one group under a new
incarnation, and keeps its own in all others.
"""

import secrets
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from penstock.cluster.small_file import put_small_file, read_small_file
from penstock.errors import Corruption, InvalidConfiguration
from penstock.ids import NodeId
from penstock.log import Disk
from penstock.raft import Incarnation, Member

_FILE_NAME = "identity.json"


class _Saved(msgspec.Struct, frozen=True):
    node_id: int
    incarnation: int
    replaced: dict[int, int] = {}


class Identity:
    """This node, as a member of each of its groups."""

    def __init__(self, disk: Disk, data_dir: Path, node_id: int) -> None:
        """Read the node's identity, or draw it when the directory is new."""
        self._disk = disk
        self._data_dir = data_dir
        path = data_dir / _FILE_NAME
        if not disk.exists(path):
            self._save(_Saved(node_id, _draw()))
        try:
            self._saved = msgspec.json.decode(read_small_file(disk, path), type=_Saved)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Corruption(f"{path} cannot be read: {error}") from error
        if self._saved.node_id != node_id:
            raise InvalidConfiguration(
                f"{data_dir} belongs to node {self._saved.node_id}, this is node {node_id};"
                " set --node-id or choose another --data-dir"
            )

    @property
    def member(self) -> Member:
        """The node as a member of every group whose replica it never lost or gave up."""
        return Member(NodeId(self._saved.node_id), Incarnation(self._saved.incarnation))

    @property
    def replaced(self) -> dict[int, int]:
        """Its incarnations in groups whose replica it has lost or given up."""
        return dict(self._saved.replaced)

    def member_of(self, group: int) -> Member:
        """The node as a member of one group."""
        incarnation = self._saved.replaced.get(group, self._saved.incarnation)
        return Member(NodeId(self._saved.node_id), Incarnation(incarnation))

    def replace(self, groups: Iterable[int], *, deleted: Collection[int] = ()) -> None:
        """Take part in groups as a stranger from now on, durably; forget some that are deleted."""
        kept = {group: each for group, each in self._saved.replaced.items() if group not in deleted}
        replaced = kept | {group: _draw() for group in groups}
        saved = _Saved(self._saved.node_id, self._saved.incarnation, replaced)
        # Nobody hears of an incarnation that a crash could take back.
        self._save(saved)
        self._saved = saved

    def forget(self, deleted: Collection[int]) -> None:
        """Forget the incarnations in groups that are deleted; their numbers are not given again."""
        if not self._saved.replaced.keys().isdisjoint(deleted):
            self.replace((), deleted=deleted)

    def _save(self, saved: _Saved) -> None:
        path = self._data_dir / _FILE_NAME
        put_small_file(self._disk, path, msgspec.json.encode(saved))


def _draw() -> int:
    return secrets.randbits(63)

"""Who a node is: its number, and the incarnation of its memory.

The incarnation is drawn when the data directory is made and lives as long as the directory. A node
that lost its disk comes back with another one and is a stranger to its groups, whatever its number:
it has forgotten its votes, so it must not vote again in their place.
"""

import secrets
from pathlib import Path

import msgspec

from penstock.errors import Corruption, InvalidConfiguration
from penstock.ids import NodeId
from penstock.log import Disk
from penstock.raft import Incarnation, Member

_FILE_NAME = "identity.json"
_TEMPORARY = "identity.tmp"


class _Identity(msgspec.Struct, frozen=True):
    node_id: int
    incarnation: int


def load_identity(disk: Disk, data_dir: Path, node_id: int) -> Member:
    """Return this node's identity, drawing it when the directory is new."""
    path = data_dir / _FILE_NAME
    if not disk.exists(path):
        _create(disk, data_dir, _Identity(node_id, secrets.randbits(63)))
    file = disk.open(path)
    try:
        identity = msgspec.json.decode(file.read_at(0, file.size()), type=_Identity)
    except msgspec.MsgspecError as error:
        raise Corruption(f"{path} cannot be read: {error}") from error
    if identity.node_id != node_id:
        raise InvalidConfiguration(
            f"{data_dir} belongs to node {identity.node_id}, this is node {node_id};"
            " set --node-id or choose another --data-dir"
        )
    return Member(NodeId(identity.node_id), Incarnation(identity.incarnation))


def _create(disk: Disk, data_dir: Path, identity: _Identity) -> None:
    temporary = data_dir / _TEMPORARY
    file = disk.create(temporary)
    file.write_at(0, [msgspec.json.encode(identity)])
    file.sync()
    file.close()
    disk.rename(temporary, data_dir / _FILE_NAME)
    disk.sync_directory(data_dir)

"""The first membership of a cluster, as a node has written it down.

It is durable before anybody hears of it (see `formation`). A node that joined a cluster which
others founded keeps an empty membership: the leader tells it everything else.
"""

from pathlib import Path

import msgspec

from penstock.cluster.small_file import put_small_file, read_small_file
from penstock.errors import Corruption
from penstock.log import Disk
from penstock.raft import Membership

_FILE_NAME = "cluster.msgpack"


class _Saved(msgspec.Struct, frozen=True):
    cluster_id: str
    membership: bytes


class FoundingFile:
    """Keeps the cluster's id and its first membership."""

    def __init__(self, disk: Disk, data_dir: Path) -> None:
        self._disk = disk
        self._path = data_dir / _FILE_NAME

    def load(self) -> tuple[str, Membership] | None:
        """Return what was saved; None before the node belongs to a cluster."""
        if not self._disk.exists(self._path):
            return None
        try:
            saved = msgspec.msgpack.decode(read_small_file(self._disk, self._path), type=_Saved)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Corruption(f"{self._path} cannot be read: {error}") from error
        return saved.cluster_id, Membership.decode(saved.membership)

    def save(self, cluster_id: str, membership: Membership) -> None:
        """Write it down, durably."""
        saved = _Saved(cluster_id, membership.encode())
        put_small_file(self._disk, self._path, msgspec.msgpack.encode(saved))

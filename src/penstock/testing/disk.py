"""A disk in memory that forgets what was not synced, and fails on demand.

Every file has the bytes that processes see, the bytes that are certain to survive a power cut, and
the changes in between; every directory has the same for its names. `sync` and `sync_directory`
carry changes over. What happens then is up to the test:

- `crash` cuts the power: of the unsynced changes some survive, torn or whole (`sectors` says how);
- `kill` ends the process: everything that it wrote is still there, and still not durable;
- `stop_before` ends the world before a chosen operation, so that a test can visit every step;
- `fail_sync`, `capacity_bytes` and `flip_bit` fail a sync, fill the disk and rot a byte.

After the end of a life all operations raise `MachineStopped` until `crash` or `kill` begins the
next one; files that were opened before stay dead. The same calls and the same `Random` give the
same bytes.
"""

import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from penstock.log import DiskFile
from penstock.testing.sectors import Change, Cut, Write, apply, resizes, survive

Buffer = bytes | bytearray | memoryview
DirectoryOrder = Literal["prefix", "subset"]

_UNLIMITED_BYTES = 1 << 50


class MachineStopped(BaseException):
    """The simulated machine is off. Not an `Exception`: no code under test may survive it."""


class _Inode:
    """One file: what is seen, what is durable, and the changes in between."""

    __slots__ = ("changes", "data", "durable", "is_viewed")

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_viewed = False
        self.durable = bytearray()
        self.changes: list[Change] = []

    def change(self, change: Change) -> None:
        if self.is_viewed and resizes(self.data, change):
            # Bytes that somebody views cannot change their size. The view may be gone by now, but
            # when it went is up to the garbage collector, and no history may depend on that.
            self.data = bytearray(self.data)
            self.is_viewed = False
        apply(self.data, change)
        self.changes.append(change)

    def view(self) -> memoryview:
        """Show the bytes as a memory map does: changes in place are seen, other sizes are not."""
        self.is_viewed = True
        return memoryview(self.data).toreadonly()

    def sync(self) -> None:
        for change in self.changes:
            apply(self.durable, change)
        self.changes.clear()

    def forget_changes(self) -> None:
        """Model a failed sync: the page cache calls the changes clean, and they never arrive."""
        self.changes.clear()

    def crash(self, random: Random) -> None:
        if self.changes:
            survive(self.durable, self.changes, random)
            self.changes.clear()
        self.data = bytearray(self.durable)
        self.is_viewed = False

    def copy(self) -> "_Inode":
        other = _Inode()
        other.data = bytearray(self.data)
        other.durable = bytearray(self.durable)
        other.changes = self.changes.copy()
        return other


class _NameChange(NamedTuple):
    """Names that go and names that come, in one step."""

    removed: str | None
    added: str | None
    node: "_Inode | _Directory | None"


class _Directory:
    """One directory: its names as seen, as durable, and the changes in between."""

    __slots__ = ("changes", "durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.changes: list[_NameChange] = []

    def change(self, change: _NameChange) -> None:
        _rename(self.names, change)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes:
            _rename(self.durable, change)
        self.changes.clear()

    def crash(self, random: Random, order: DirectoryOrder) -> None:
        if order == "prefix":
            kept = self.changes[: random.randrange(len(self.changes) + 1)]
        else:
            kept = [change for change in self.changes if random.random() < 0.5]
        for change in kept:
            _rename(self.durable, change)
        self.changes.clear()
        self.names = dict(self.durable)
        for node in self.names.values():
            if isinstance(node, _Inode):
                node.crash(random)
            else:
                node.crash(random, order)

    def copy(self, copies: dict[int, "_Inode | _Directory"]) -> "_Directory":
        other = _Directory()
        copies[id(self)] = other
        other.names = {name: _copy(node, copies) for name, node in self.names.items()}
        other.durable = {name: _copy(node, copies) for name, node in self.durable.items()}
        other.changes = [
            change._replace(node=_copy(change.node, copies)) if change.node else change
            for change in self.changes
        ]
        return other


def _rename(names: "dict[str, _Inode | _Directory]", change: _NameChange) -> None:
    if change.removed is not None:
        names.pop(change.removed, None)
    if change.added is not None:
        assert change.node is not None
        names[change.added] = change.node


def _copy(
    node: "_Inode | _Directory", copies: "dict[int, _Inode | _Directory]"
) -> "_Inode | _Directory":
    found = copies.get(id(node))
    if found is None:
        found = copies[id(node)] = node.copy() if isinstance(node, _Inode) else node.copy(copies)
    return found


class SimFile:
    """An open file of a `SimDisk`."""

    __slots__ = ("_disk", "_inode", "_life")

    def __init__(self, disk: "SimDisk", inode: _Inode) -> None:
        self._disk = disk
        self._inode: _Inode | None = inode
        self._life = disk.life

    def _open_inode(self) -> _Inode:
        if self._life != self._disk.life:
            raise MachineStopped("the file was opened in an earlier life of the machine")
        if self._inode is None:
            raise OSError(errno.EBADF, "the file is closed")
        return self._inode

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers back to back."""
        inode = self._open_inode()
        self._disk.step("write")
        data = b"".join(buffers)
        growth = position + len(data) - len(inode.data)
        if growth > 0 and (excess := self._disk.excess_bytes(growth)) > 0:
            if self._disk.tears_when_full and excess < len(data):
                inode.change(Write(position, data[: len(data) - excess]))
            raise OSError(errno.ENOSPC, "the simulated disk is full")
        if data:
            inode.change(Write(position, data))

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes`."""
        inode = self._open_inode()
        self._disk.check_running()
        return bytes(memoryview(inode.data)[position : position + size_bytes])

    def view(self) -> Buffer:
        """Return the bytes as they are now; a later change of the size does not show."""
        inode = self._open_inode()
        self._disk.check_running()
        return inode.view() if inode.data else b""

    def size(self) -> int:
        """Return the size in bytes."""
        inode = self._open_inode()
        self._disk.check_running()
        return len(inode.data)

    def sync(self) -> None:
        """Make what was written so far durable."""
        inode = self._open_inode()
        self._disk.step("sync")
        if self._disk.is_sync_failing():
            inode.forget_changes()
            raise OSError(errno.EIO, "a simulated sync failed")
        inode.sync()

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or let it grow by zeros."""
        inode = self._open_inode()
        self._disk.step("truncate")
        if size_bytes != len(inode.data):
            inode.change(Cut(size_bytes))

    def fileno(self) -> int:
        """There is no descriptor."""
        return -1

    def close(self) -> None:
        """Release the file."""
        self._inode = None


class SimDisk:
    """A disk in memory; see the module for what it can do to its files.

    `operations` counts everything that changes the disk, and `trace` keeps the names of those
    operations when it is a list.
    """

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.tears_when_full = False
        self.operations = 0
        self.life = 0
        self.trace: list[str] | None = None
        self._root = _Directory()
        self._found: dict[Path, _Directory] = {}
        self._stop_before = 0
        self._is_stopped = False
        self._syncs_until_failure = 0

    # What the log asks for.

    def open(self, path: Path) -> DiskFile:
        """Open a file that exists."""
        self.check_running()
        return SimFile(self, self._inode(path))

    def create(self, path: Path) -> DiskFile:
        """Create a file, or empty the one that is there."""
        self.step("create", path)
        directory = self._directory(path.parent)
        node = directory.names.get(path.name)
        if node is None:
            inode = _Inode()
            directory.change(_NameChange(None, path.name, inode))
        elif isinstance(node, _Inode):
            inode = node
            if inode.data:
                inode.change(Cut(0))
        else:
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        return SimFile(self, inode)

    def exists(self, path: Path) -> bool:
        """True when there is such a file or directory."""
        self.check_running()
        return self._node(path) is not None

    def names(self, path: Path) -> list[str]:
        """Return the sorted names in a directory."""
        self.check_running()
        return sorted(self._directory(path).names)

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, durably."""
        self.check_running()
        directory = self._root
        for part in path.parts:
            node = directory.names.get(part)
            if node is None:
                self.step("make_directory", path)
                # Whatever happened in the directory before is durable with it.
                directory.sync()
                node = directory.names[part] = directory.durable[part] = _Directory()
            if isinstance(node, _Inode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            directory = node

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source` in one step."""
        self.step("rename", target)
        node = self._node(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
        if isinstance(node, _Directory):
            self._found.clear()
        if source.parent == target.parent:
            self._directory(source.parent).change(_NameChange(source.name, target.name, node))
            return
        self._directory(target.parent).change(_NameChange(None, target.name, node))
        self._directory(source.parent).change(_NameChange(source.name, None, None))

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is fine."""
        self.step("remove", path)
        parent = self._node(path.parent)
        if isinstance(parent, _Directory) and path.name in parent.names:
            parent.change(_NameChange(path.name, None, None))

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all that is in it, one name after the other."""
        directory = self._directory(path)
        for name in sorted(directory.names):
            if isinstance(directory.names[name], _Directory):
                self.remove_tree(path / name)
            else:
                self.remove(path / name)
        self.step("remove_tree", path)
        self._directory(path.parent).change(_NameChange(path.name, None, None))
        self._found.clear()

    def sync_directory(self, path: Path) -> None:
        """Make creations, renames and removals in a directory durable."""
        directory = self._directory(path)
        self.step("sync_directory", path)
        if self.is_sync_failing():
            raise OSError(errno.EIO, "a simulated sync failed", str(path))
        directory.sync()

    def free_bytes(self, path: Path) -> int:
        """Return the bytes that may still be written."""
        self.check_running()
        self._directory(path)
        if self.capacity_bytes is None:
            return _UNLIMITED_BYTES
        return max(0, self.capacity_bytes - _used_bytes(self._root))

    # What tests ask for.

    def stop_before(self, operations: int) -> None:
        """Stop the machine before the operation after the next `operations`; 0 is the next one."""
        self._stop_before = self.operations + operations + 1

    def run_on(self) -> None:
        """Take back `stop_before`."""
        self._stop_before = 0

    def fail_sync(self, syncs: int = 0) -> None:
        """Fail one sync, of a file or a directory, after the next `syncs` have succeeded."""
        self._syncs_until_failure = syncs + 1

    def crash(self, random: Random, order: DirectoryOrder = "prefix") -> None:
        """Cut the power and start again: what was synced is there, of the rest some.

        Unsynced changes of names survive up to some point, as on a file system with a journal, or
        as an arbitrary subset, which is all that POSIX promises.
        """
        self._root.crash(random, order)
        self.kill()

    def kill(self) -> None:
        """End the process with `kill -9` and start again: all that was written is there."""
        self.life += 1
        self._is_stopped = False
        self._stop_before = 0
        self._syncs_until_failure = 0
        self._found.clear()

    def flip_bit(self, path: Path, position: int, bit: int = 0) -> None:
        """Rot one bit of a file, in memory and on the medium."""
        inode = self._inode(path)
        inode.data[position] ^= 1 << bit
        if position < len(inode.durable):
            inode.durable[position] ^= 1 << bit

    def content(self, path: Path) -> bytes:
        """Return the bytes of a file, also while the machine is off."""
        return bytes(self._inode(path).data)

    def durable(self, path: Path, start: int, end: int) -> bytes:
        """Return bytes that no power cut can take, also while the machine is off.

        There are none in a file whose name is not durable.
        """
        inode = self._directory(path.parent).durable.get(path.name)
        return bytes(inode.durable[start:end]) if isinstance(inode, _Inode) else b""

    def files(self, path: Path) -> list[Path]:
        """Return the files in a directory, also while the machine is off."""
        node = self._node(path)
        if not isinstance(node, _Directory):
            return []
        return [path / name for name in sorted(node.names) if isinstance(node.names[name], _Inode)]

    def used_bytes(self) -> int:
        """Return the size of all files."""
        return _used_bytes(self._root)

    def put(self, path: Path, content: bytes) -> None:
        """Set the bytes of a file that exists, in memory and on the medium."""
        inode = self._inode(path)
        inode.data = bytearray(content)
        inode.is_viewed = False
        inode.durable = bytearray(content)
        inode.changes.clear()

    def copy(self) -> "SimDisk":
        """Return an independent disk with the same files; no fault is armed on it."""
        other = SimDisk(self.capacity_bytes)
        other.tears_when_full = self.tears_when_full
        other._root = self._root.copy({})
        return other

    # What open files ask for.

    def step(self, operation: str, path: Path | None = None) -> None:
        """Count an operation, unless the machine stops before it."""
        self.operations += 1
        if self._is_stopped or self.operations == self._stop_before:
            self._is_stopped = True
            raise MachineStopped(f"stopped before operation {self.operations}, {operation}")
        if self.trace is not None:
            self.trace.append(f"{operation} {path.name}" if path else operation)

    @property
    def is_stopped(self) -> bool:
        """True when the machine went off before an operation."""
        return self._is_stopped

    def check_running(self) -> None:
        """Raise when the machine is off."""
        if self._is_stopped:
            raise MachineStopped("the machine is off")

    def is_sync_failing(self) -> bool:
        """Count a sync; True when it is the one that fails."""
        if self._syncs_until_failure == 0:
            return False
        self._syncs_until_failure -= 1
        return self._syncs_until_failure == 0

    def excess_bytes(self, growth: int) -> int:
        """Return by how much `growth` more bytes exceed the capacity."""
        if self.capacity_bytes is None:
            return 0
        return growth - max(0, self.capacity_bytes - _used_bytes(self._root))

    # Finding things.

    def _directory(self, path: Path) -> _Directory:
        found = self._found.get(path)
        if found is None:
            node = self._node(path)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
            if isinstance(node, _Inode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            found = self._found[path] = node
        return found

    def _inode(self, path: Path) -> _Inode:
        node = self._directory(path.parent).names.get(path.name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        return node

    def _node(self, path: Path) -> _Inode | _Directory | None:
        node: _Inode | _Directory | None = self._root
        for part in path.parts:
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(part)
        return node


def _used_bytes(directory: _Directory) -> int:
    return sum(
        len(node.data) if isinstance(node, _Inode) else _used_bytes(node)
        for node in directory.names.values()
    )

"""The few things that the log asks of a disk.

All file access of the log goes through these two classes, so that the simulator can put a disk in
their place that loses unsynced writes, tears the last one, runs full or fails to sync.
"""

import mmap
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

Buffer = bytes | bytearray | memoryview

# writev takes at most this many buffers at a time on Linux.
_BUFFERS_MAX = 1024


class DiskFile(Protocol):
    """One open file, read and written at explicit positions."""

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers back to back, or raise `OSError` with an unknown part written."""

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes`; fewer only at the end of the file."""

    def view(self) -> Buffer:
        """Return the whole file as a read-only buffer that is not copied."""

    def size(self) -> int:
        """Return the size in bytes."""

    def sync(self) -> None:
        """Return when everything written so far survives a power cut."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file; `sync` makes the cut durable."""

    def fileno(self) -> int:
        """Return the descriptor for sendfile, or -1 when there is none."""

    def close(self) -> None:
        """Release the descriptor."""


class Disk(Protocol):
    """Directory operations and opening of files."""

    def open(self, path: Path) -> DiskFile:
        """Open a file that exists."""

    def create(self, path: Path) -> DiskFile:
        """Create a file, or empty the one that is there."""

    def exists(self, path: Path) -> bool:
        """True when there is such a file or directory."""

    def names(self, path: Path) -> list[str]:
        """Return the sorted names in a directory."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, durably."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source` in one step."""

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is fine."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all that is in it."""

    def sync_directory(self, path: Path) -> None:
        """Make creations, renames and removals in a directory durable."""

    def free_bytes(self, path: Path) -> int:
        """Return the bytes that ordinary processes may still write."""


class LocalFile:
    """A file of the operating system. The descriptor closes with the last reference."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path, flags: int) -> None:
        self._fd = -1
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers back to back."""
        if len(buffers) > _BUFFERS_MAX:
            for first in range(0, len(buffers), _BUFFERS_MAX):
                chunk = buffers[first : first + _BUFFERS_MAX]
                self.write_at(position, chunk)
                position += sum(map(len, chunk))
            return
        written = os.pwritev(self._fd, buffers, position)
        if written < sum(map(len, buffers)):
            self._write_rest(position + written, b"".join(buffers)[written:])

    def _write_rest(self, position: int, rest: bytes) -> None:
        while rest:
            written = os.pwrite(self._fd, rest, position)
            position += written
            rest = rest[written:]

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes`."""
        data = os.pread(self._fd, size_bytes, position)
        if not data or len(data) == size_bytes:
            return data
        parts = [data]
        have = len(data)
        while have < size_bytes:
            more = os.pread(self._fd, size_bytes - have, position + have)
            if not more:
                break
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def view(self) -> Buffer:
        """Map the whole file into memory."""
        if self.size() == 0:
            return b""
        return memoryview(mmap.mmap(self._fd, 0, prot=mmap.PROT_READ))

    def size(self) -> int:
        """Return the size in bytes."""
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        """Flush data, and the size that is needed to find it."""
        os.fdatasync(self._fd)

    def truncate(self, size_bytes: int) -> None:
        """Cut the file."""
        os.ftruncate(self._fd, size_bytes)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def close(self) -> None:
        """Release the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # A fetch may still be sending a range of a file that retention has removed.
        self.close()


class LocalDisk:
    """The disk of the machine."""

    def open(self, path: Path) -> DiskFile:
        """Open a file that exists."""
        return LocalFile(path, os.O_RDWR)

    def create(self, path: Path) -> DiskFile:
        """Create a file, or empty the one that is there."""
        return LocalFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def exists(self, path: Path) -> bool:
        """True when there is such a file or directory."""
        return path.exists()

    def names(self, path: Path) -> list[str]:
        """Return the sorted names in a directory."""
        return sorted(entry.name for entry in path.iterdir())

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, durably."""
        missing = []
        while not path.exists():
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            self.sync_directory(directory.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source` in one step."""
        source.rename(target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all that is in it."""
        shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        """Make creations, renames and removals durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: Path) -> int:
        """Return the bytes that ordinary processes may still write."""
        state = os.statvfs(path)
        return state.f_bavail * state.f_frsize


def cut_anew(file: DiskFile, size_bytes: int) -> None:
    """Cut a file so that its next sync brings the size to the disk, even if it has it already.

    After a sync that failed, the page cache may show a cut and call it clean: cutting to the same
    size changes nothing, syncing it brings nothing to the disk, and a power cut undoes it.
    """
    if file.size() == size_bytes:
        file.truncate(size_bytes + 1)
    file.truncate(size_bytes)

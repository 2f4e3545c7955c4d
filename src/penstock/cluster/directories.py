"""Where a node keeps what, and who may use it.

LOCK                          held by the running process
metadata/                     the cluster's metadata log
groups/shards                 how many shards there are
groups/<shard>/               consumer groups and their offsets
topics/<files>/id             the topic's id, so that leftovers of an older topic are noticed
topics/<files>/<partition>/   the partition's log
deleted/<topic id>/           on its way out
damaged/<log>.<n>/            replicas that could not be opened, kept for people to look at

<files> is the name under which the topic was created; it stays when the topic is renamed.
"""

import contextlib
import fcntl
import itertools
import logging
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.cluster.small_file import put_small_file, read_small_file
from penstock.errors import Corruption, DataDirectoryInUse, InvalidConfiguration
from penstock.log import Disk

logger = logging.getLogger(__name__)

_ID_FILE = "id"
_SHARDS_FILE = "shards"


class DirectoryLock:
    """Keeps other processes out of a data directory; the system frees it with the process."""

    def __init__(self, data_dir: Path) -> None:
        path = data_dir / "LOCK"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise DataDirectoryInUse(
                f"{data_dir} is in use by another penstock process (pid {holder});"
                " stop that one or choose another --data-dir"
            ) from error
        # The lock holds without the number, which a full disk may have no room for.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.write(self._fd, str(os.getpid()).encode())

    def release(self) -> None:
        """Let others in."""
        os.close(self._fd)


class Directories:
    """The layout of one node's data."""

    def __init__(self, data_dir: Path, disk: Disk) -> None:
        self._data_dir = data_dir
        self._disk = disk
        for path in (self._topics, self._deleted):
            disk.make_directory(path)

    @property
    def metadata(self) -> Path:
        """The metadata log."""
        return self._data_dir / "metadata"

    @property
    def _topics(self) -> Path:
        return self._data_dir / "topics"

    @property
    def _deleted(self) -> Path:
        return self._data_dir / "deleted"

    def group_shard(self, shard: int) -> Path:
        """The log of one shard of the consumer groups."""
        return self._data_dir / "groups" / str(shard)

    def partition(self, files: str, partition: int) -> Path:
        """The log of one partition."""
        return self._topics / files / str(partition)

    def partitions_of(self, files: str, topic_id: uuid.UUID) -> set[str]:
        """Return the names in a topic's directory, partitions among them; none if it is another's.

        An id that cannot be read explains nothing, so nothing is found under it.
        """
        directory = self._topics / files
        if not self._disk.exists(directory):
            return set()
        try:
            found = self._id_in(directory)
        except Corruption as damage:
            logger.error("topic id is damaged", extra={"reason": str(damage)})
            return set()
        return set(self._disk.names(directory)) if found == topic_id else set()

    def claim_topic(self, files: str, topic_id: uuid.UUID) -> None:
        """Make the topic's directory its own; leftovers of an older topic are moved away.

        A crash before the id is durable leaves a directory without records, because partitions
        are opened only after this returns.
        """
        directory = self._topics / files
        found = self._id_in(directory)
        if found == topic_id:
            return
        if found is not None:
            self.discard_topic(files, found)
        self._write(directory / _ID_FILE, str(topic_id))

    def discard_topic(self, files: str, topic_id: uuid.UUID) -> None:
        """Take a topic's files out of sight in one step; `empty_deleted` removes them."""
        directory = self._topics / files
        if not self._disk.exists(directory):
            return
        self._disk.rename(directory, self._deleted / str(topic_id))
        self._disk.sync_directory(self._topics)

    def discard_deleted(self, was_deleted: Callable[[uuid.UUID], bool]) -> None:
        """Move the files of deleted topics away."""
        for name, topic_id in self._topic_ids():
            if topic_id is not None and was_deleted(topic_id):
                self.discard_topic(name, topic_id)

    def discard_replica(self, directory: Path) -> None:
        """Move the files of a replica away that other nodes keep now."""
        if self._disk.exists(directory):
            self._disk.rename(directory, self._deleted / str(uuid.uuid4()))
            self._disk.sync_directory(directory.parent)

    def set_aside(self, source: Path, name: str) -> None:
        """Move a damaged replica away, where nobody uses it and nothing is lost of it."""
        damaged = self._data_dir / "damaged"
        self._disk.make_directory(damaged)
        taken = self._disk.names(damaged)
        # Somebody may have looked at some of them and removed those.
        numbers = itertools.count(len(taken) + 1)
        target = next(each for n in numbers if (each := f"{name}.{n}") not in taken)
        self._disk.rename(source, damaged / target)
        self._disk.sync_directory(source.parent)
        self._disk.sync_directory(damaged)

    def report_unknown(self, is_current: Callable[[uuid.UUID], bool]) -> None:
        """Name directories that no topic explains; they are kept, the metadata may be lost."""
        for name, topic_id in self._topic_ids():
            if topic_id is None or not is_current(topic_id):
                logger.warning(
                    "directory belongs to no topic", extra={"path": str(self._topics / name)}
                )

    def _topic_ids(self) -> Iterator[tuple[str, uuid.UUID | None]]:
        for name in self._disk.names(self._topics):
            try:
                yield name, self._id_in(self._topics / name)
            except Corruption as damage:
                logger.error("topic id is damaged", extra={"reason": str(damage)})

    def empty_deleted(self) -> None:
        """Remove the files of deleted topics."""
        for name in self._disk.names(self._deleted):
            self._disk.remove_tree(self._deleted / name)

    def claim_group_shards(self, count: int) -> None:
        """Keep the number of shards with the data, and refuse any other from then on.

        A group's shard follows from its name and this number: under another one, groups would look
        for their offsets where they never were. The number is durable before the first shard is.
        """
        path = self._data_dir / "groups" / _SHARDS_FILE
        if not self._disk.exists(path):
            self._write(path, str(count))
            return
        text = read_small_file(self._disk, path).decode(errors="replace")
        if not (text.isascii() and text.isdecimal()):
            raise Corruption(f"{path} should hold the number of shards, it holds {text!r}")
        if int(text) != count:
            raise InvalidConfiguration(
                f"group_shards: is {count}, but {self._data_dir} was made with {text};"
                " the number cannot change"
            )

    def _write(self, path: Path, text: str) -> None:
        """Put a small file in place durably, with its directory."""
        self._disk.make_directory(path.parent)
        put_small_file(self._disk, path, text.encode())

    def _id_in(self, directory: Path) -> uuid.UUID | None:
        path = directory / _ID_FILE
        if not self._disk.exists(path):
            return None
        text = read_small_file(self._disk, path).decode(errors="replace")
        try:
            return uuid.UUID(text)
        except ValueError as error:
            raise Corruption(f"{path} should hold a topic id, it holds {text!r}") from error

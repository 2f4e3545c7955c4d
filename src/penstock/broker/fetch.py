"""Reading by offset, with or without waiting for more."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.broker.statistics import Statistics
from penstock.cluster import Cluster, Partition
from penstock.errors import FencedLeaderEpoch, NotLeader, PenstockError, UnknownLeaderEpoch
from penstock.ids import Offset, TopicPartition
from penstock.log import FileRange


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """From where one partition is to be read; an epoch of -1 is not checked."""

    place: TopicPartition
    offset: int
    bytes_max: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was found in one partition, or why nothing was."""

    place: TopicPartition
    high_watermark: Offset = Offset(-1)  # noqa: RUF009
    start_offset: Offset = Offset(-1)  # noqa: RUF009
    data: FileRange | None = None
    error: PenstockError | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes that would be sent."""
        return self.data.size_bytes if self.data else 0


class Fetcher:
    """Finds committed batches."""

    def __init__(self, cluster: Cluster, statistics: Statistics) -> None:
        self._cluster = cluster
        self._statistics = statistics

    async def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        wait_ms: int,
        bytes_min: int,
        bytes_max: int,
    ) -> list[Fetched]:
        """Return what is there; wait up to `wait_ms` while it is less than `bytes_min`.

        An error in any partition is returned at once.
        """
        found = self._collect(requests, bytes_max)
        if wait_ms > 0 and requests and not _is_enough(found, bytes_min):
            found = await self._wait(requests, wait_ms, bytes_min, bytes_max)
        counts = self._statistics
        counts.fetches += 1
        counts.bytes_out += sum(fetched.size_bytes for fetched in found)
        return found

    async def _wait(
        self, requests: Sequence[FetchRequest], wait_ms: int, bytes_min: int, bytes_max: int
    ) -> list[Fetched]:
        """Look again whenever something is committed; nothing was enough a moment ago."""
        more = asyncio.Event()
        names_version = self._cluster.metadata.names_version
        watched = [self._cluster.partition(request.place) for request in requests]

        def look() -> list[Fetched]:
            if self._cluster.metadata.names_version != names_version:
                return [_renamed(request) for request in requests]
            return self._collect(requests, bytes_max)

        for partition in watched:
            partition.log.watch(more.set)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while True:
                    await more.wait()
                    found = look()
                    if _is_enough(found, bytes_min):
                        return found
                    more.clear()
        except TimeoutError:
            return look()
        finally:
            for partition in watched:
                partition.log.unwatch(more.set)

    def _collect(self, requests: Sequence[FetchRequest], bytes_max: int) -> list[Fetched]:
        """Read every partition until `bytes_max` is used up.

        The first batch that is found is returned whatever its size, so that a reader always
        makes progress.
        """
        found = []
        left = bytes_max
        has_data = False
        for request in requests:
            fetched = self._read(request, min(request.bytes_max, left))
            if has_data and fetched.size_bytes > left:
                fetched = Fetched(
                    fetched.place, fetched.high_watermark, fetched.start_offset, None, None
                )
            left = max(0, left - fetched.size_bytes)
            has_data = has_data or fetched.data is not None
            found.append(fetched)
        return found

    def _read(self, request: FetchRequest, bytes_max: int) -> Fetched:
        try:
            partition = self._cluster.partition(request.place)
            check_epoch(partition, request.leader_epoch)
            data = partition.read(request.offset, bytes_max=bytes_max)
        except PenstockError as error:
            return Fetched(request.place, error=error)
        return Fetched(request.place, partition.high_watermark, partition.start_offset, data)


def _renamed(request: FetchRequest) -> Fetched:
    """Send a reader to look up its topic: what has the name now may be another one."""
    return Fetched(request.place, error=NotLeader(f"{request.place} may be another one by now"))


def check_epoch(partition: Partition, leader_epoch: int) -> None:
    """Raise when the client knows an older or a newer leader than this node; -1 is not checked."""
    if leader_epoch < 0:
        return
    if leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(
            f"{partition.place} is at leader epoch {partition.leader_epoch}, not {leader_epoch}"
        )
    if leader_epoch > partition.leader_epoch:
        raise UnknownLeaderEpoch(
            f"{partition.place} is at leader epoch {partition.leader_epoch}, not {leader_epoch}"
        )


def _is_enough(found: list[Fetched], bytes_min: int) -> bool:
    size_bytes = 0
    for fetched in found:
        if fetched.error is not None:
            return True
        size_bytes += fetched.size_bytes
    return size_bytes >= bytes_min

"""Work that nobody asks for: checkpoints, snapshots, retention, compaction, scrubbing, disk space.

Everything here runs beside the traffic, one log at a time, and gives way to it. A disk that fails
or runs full on one log is reported there and does not end the work on others. Retention goes on by
the last snapshot when there is no room for another one: it is what makes room.

Of a topic with an archive, retention and compaction leave alone whatever the archive is not known
to hold. Its position is a state entry of the partition's own log, so every replica goes by the same
one: it is proposed after the archive's commit is durable, and can only lag behind the archive. A
crash in between keeps segments for longer, never removes one too early. Records that somebody
deletes are deleted, archived or not.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from penstock.cluster.cluster import Cluster
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.upkeep import undisturbed
from penstock.cluster.workplace import Workplace
from penstock.config import NodeOptions
from penstock.errors import Corruption, DiskFull, PenstockError, StorageFailed, Unavailable
from penstock.log import (
    Damage,
    Segment,
    damage_of,
    plan_compaction,
    scrub_segment,
)
from penstock.raft import Rest

logger = logging.getLogger(__name__)

T = TypeVar("T")

_DISK_CHECK_INTERVAL_S = 1.0
_TRAFFIC_INTERVAL_S = 5.0
# The scrub reads at most this much per second, to leave the disk to others.
_SCRUB_BYTES_PER_S = 32 * 1024 * 1024
# Replay after a restart reads about this much at most; records are replayed faster than the rest.
REPLAYED_ENTRIES_MAX = 50_000
REPLAYED_LOG_BYTES_MAX = 512 * 1024 * 1024
REPLAYED_STATE_BYTES_MAX = 64 * 1024 * 1024


class DiskSpace:
    """Knows whether there is room for new records."""

    def __init__(self, options: NodeOptions, workplace: Workplace) -> None:
        self._directory = options.data_dir
        self._free_bytes_min = options.disk_free_bytes_min
        self._disk = workplace.disk
        self.free_bytes = 0
        self.is_low = False
        self.refresh()

    def refresh(self) -> None:
        """Look at the disk."""
        self.free_bytes = self._disk.free_bytes(self._directory)
        is_low = self.free_bytes < self._free_bytes_min
        if is_low != self.is_low:
            message = "disk is nearly full, publishes are refused" if is_low else "disk has room"
            logger.warning(message, extra={"free_bytes": self.free_bytes})
        self.is_low = is_low

    @property
    def told(self) -> str:
        """How much is free, and how much there has to be."""
        relation = "fewer than" if self.is_low else "at least"
        return (
            f"{self.free_bytes} bytes are free, {relation} the {self._free_bytes_min} to keep free"
        )

    def check(self) -> None:
        """Raise `DiskFull` when new records must be refused."""
        if self.is_low:
            raise DiskFull(
                f"{self.free_bytes} bytes of disk are free, fewer than the"
                f" {self._free_bytes_min} that are kept; publishes are refused until there is room"
            )


class Housekeeper:
    """Looks after all logs of a node until it is cancelled."""

    def __init__(
        self, cluster: Cluster, space: DiskSpace, options: NodeOptions, workplace: Workplace
    ) -> None:
        self._cluster = cluster
        self._space = space
        self._options = options
        self._workplace = workplace

    async def run(self) -> None:
        """Run all rounds side by side."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_disk())
            tasks.create_task(self._checkpoint_rounds())
            tasks.create_task(self._sample_traffic())
            tasks.create_task(self._retention_rounds())
            if self._options.scrub_interval_ms > 0:
                tasks.create_task(self._scrub_rounds())

    async def _watch_disk(self) -> None:
        while True:
            try:
                self._space.refresh()
            except OSError as failure:
                logger.error("disk space is unknown", extra={"reason": str(failure)})
            await asyncio.sleep(_DISK_CHECK_INTERVAL_S)

    async def _sample_traffic(self) -> None:
        while True:
            now_s = self._workplace.clock.steady_s()
            for partition in self._cluster.partitions:
                partition.traffic.sample(now_s)
            await asyncio.sleep(_TRAFFIC_INTERVAL_S)

    async def _checkpoint_rounds(self) -> None:
        # Groups that had nothing to save, with the rest in which they were seen: thousands of idle
        # logs are passed over every second.
        saved: dict[int, Rest] = {}
        while True:
            await asyncio.sleep(self._options.checkpoint_interval_ms / 1000)
            for log in list(self._cluster.logs()):
                if log.suspicion:
                    await self._work_on(log, "scrub", self.look_at_suspicion)
                group, rest = log.identity.group, log.raft.rest
                if rest is not None and saved.get(group) is rest:
                    continue
                if log.log.needs_checkpoint or is_snapshot_due(log):
                    await self._work_on(log, "checkpoint", self._checkpoint)
                elif rest is not None:
                    saved[group] = rest

    async def _work_on(
        self, log: ReplicatedLog, work: str, run: Callable[[ReplicatedLog], Awaitable[None]]
    ) -> None:
        """Run one piece of work on a log that can be used; its failure concerns that log alone."""
        if log.failure is not None:
            return
        try:
            with self._cluster.upkeep.working_on(log):
                await run(log)
        except StorageFailed as failure:
            log.fail(failure)
        except Unavailable:
            logger.debug("log is being closed", extra={"log": log.name, "work": work})
        except (OSError, PenstockError) as failure:
            if isinstance(failure, OSError) and failure.errno != errno.ENOSPC:
                # Half of a swap or of a removal may be done. The next start finishes it; trying
                # again on top of it would not.
                log.fail(StorageFailed(f"{log.name} is closed on this node: {failure}"))
                return
            # Without it the next start reads more, or old records stay for longer; none is lost.
            logger.error(
                "housekeeping failed",
                extra={"log": log.name, "work": work, "reason": str(failure)},
            )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await undisturbed(
            self._workplace.loop.run_in_executor(self._workplace.executor, work)
        )

    async def _checkpoint(self, log: ReplicatedLog) -> None:
        if is_snapshot_due(log):
            await undisturbed(log.save_snapshot())
        await undisturbed(log.checkpoint())

    async def _retention_rounds(self) -> None:
        while True:
            await asyncio.sleep(self._options.housekeeping_interval_ms / 1000)
            await self.tidy()

    async def tidy(self) -> None:
        """Apply retention and compaction to every log once."""
        for log in list(self._cluster.logs()):
            await self._work_on(log, "retention", self._tidy_log)

    async def _tidy_log(self, log: ReplicatedLog) -> None:
        now_ms = self._workplace.clock.now_ms()
        if log.log.is_seal_due(now_ms):
            with _as_far_as_there_is_room(log):
                # It may not be any more when its turn has come.
                await undisturbed(log.run_exclusive(lambda: log.log.seal_if_due(now_ms)))
        if len(log.log.segments) < 2 or log.is_held:
            return
        with _as_far_as_there_is_room(log):
            await undisturbed(log.save_snapshot())
        with log.keeping_files():
            await self._give_up(log, now_ms)

    async def _give_up(self, log: ReplicatedLog, now_ms: int) -> None:
        """Remove and compact what the topic's settings and deletions allow."""
        removable = _removable(log, now_ms, log.snapshot_index)
        if removable and log.entry_reader is not None:
            # Followers wait for what the leader does here.
            with _as_far_as_there_is_room(log):
                await undisturbed(log.entry_reader.restage_below(removable[-1].next_index))
            if (needed := log.entry_reader.first_index) is not None:
                removable = _removable(log, now_ms, min(log.snapshot_index, needed))
        if removable:
            await self._remove(log, removable)
            if log.entry_reader is not None:
                with _as_far_as_there_is_room(log):
                    await undisturbed(log.entry_reader.entries_removed())
        if log.log.settings.compacts:
            await self._compact(log, now_ms)

    async def _remove(self, log: ReplicatedLog, segments: list[Segment]) -> None:
        log.log.forget(segments)
        for segment in segments:
            await self._in_thread(segment.remove_files)
        logger.info(
            "segments deleted",
            extra={
                "log": log.name,
                "segments": len(segments),
                "first_offset": log.log.first_offset,
            },
        )

    async def _compact(self, log: ReplicatedLog, now_ms: int) -> None:
        compaction = plan_compaction(
            log.log.segments,
            log.log.settings,
            now_ms,
            end_index=min(log.snapshot_index, _archived_index(log)),
            remembered=log.machine.remembered,
        )
        if compaction is None:
            return
        swapped = await self._in_thread(lambda: compaction.run(self._workplace.disk))
        for old, new in swapped:
            log.log.segments[log.log.segments.index(old)] = new
        logger.info(
            "log compacted",
            extra={
                "log": log.name,
                "segments": len(swapped),
                "bytes_before": sum(old.log_bytes for old, _ in swapped),
                "bytes_after": sum(new.log_bytes for _, new in swapped),
            },
        )

    async def _scrub_rounds(self) -> None:
        while True:
            await asyncio.sleep(self._options.scrub_interval_ms / 1000)
            for log in list(self._cluster.logs()):
                await self._work_on(log, "scrub", self.scrub)

    async def scrub(self, log: ReplicatedLog) -> None:
        """Check all bytes of a log; what is damaged is reported and never served again."""
        for segment in list(log.log.segments):
            try:
                damages = await self._in_thread(partial(_damages_of, segment, self._pace_on(log)))
            except FileNotFoundError:
                # Retention has removed the segment meanwhile.
                continue
            except OSError as failure:
                logger.error("scrub failed", extra={"log": log.name, "reason": str(failure)})
                continue
            if segment not in log.log.segments:
                # The segment was cut or replaced while it was being read.
                continue
            for damage in damages:
                await self._deal_with(log, segment, damage)

    async def look_at_suspicion(self, log: ReplicatedLog) -> None:
        """Check the batch that readers found damaged, until it is mended or nobody can do it."""
        offset = log.suspicion.take_look()
        segment = next((each for each in log.log.segments if offset < each.table.next_offset), None)
        number = 0 if segment is None else segment.table.number_of_offset(offset)
        if segment is None or number >= segment.written_rows:
            log.suspicion.end()
            return
        check = partial(damage_of, segment, number, self._pace_on(log))
        try:
            damage = await self._in_thread(check)
        except OSError as failure:
            # Retention may have removed the segment meanwhile.
            logger.error("scrub failed", extra={"log": log.name, "reason": str(failure)})
            log.suspicion.end()
            return
        if segment not in log.log.segments:
            return
        if damage is None or await self._deal_with(log, segment, damage):
            log.suspicion.end()
        elif log.is_alone or not log.suspicion:
            row = segment.table.row(number)
            log.suspicion.give_up(range(row.first_offset, row.next_offset))

    def _pace_on(self, log: ReplicatedLog) -> Callable[[int], None]:
        def pace(size_bytes: int) -> None:
            self._cluster.upkeep.check(log)
            time.sleep(size_bytes / _SCRUB_BYTES_PER_S)

        return pace

    async def _deal_with(self, log: ReplicatedLog, segment: Segment, damage: Damage) -> bool:
        """Report damage, and mend it if that can be done now."""
        if (damage.start, damage.end) not in segment.damage:
            _report(log, segment, damage)
        is_mended = await self._cluster.mend(log, segment, damage)
        if not is_mended and not damage.is_log:
            log.fail(Corruption(f"{damage.path} is damaged: {damage.reason}"))
        return is_mended


@contextmanager
def _as_far_as_there_is_room(log: ReplicatedLog) -> Iterator[None]:
    """Let retention go on although the disk is full: what it takes by the last snapshot is room."""
    try:
        yield
    except (OSError, DiskFull) as failure:
        if isinstance(failure, OSError) and failure.errno != errno.ENOSPC:
            raise
        logger.warning("no room to tidy up", extra={"log": log.name, "reason": str(failure)})


def is_snapshot_due(log: ReplicatedLog) -> bool:
    """True when a restart would have to replay much.

    A large state is not saved again before there is twice as much to replay, so that saving it
    costs no more than a share of what is written anyway.
    """
    if log.applied_index + 1 - log.snapshot_index >= REPLAYED_ENTRIES_MAX:
        return True
    if log.log.size_bytes < REPLAYED_STATE_BYTES_MAX:
        # Most logs are small, and are looked at every second.
        return False
    log_bytes, state_bytes = log.log.bytes_from(log.snapshot_index)
    return log_bytes >= REPLAYED_LOG_BYTES_MAX or state_bytes >= max(
        REPLAYED_STATE_BYTES_MAX, 2 * log.snapshot_bytes
    )


def _removable(log: ReplicatedLog, now_ms: int, deletable_index: int) -> list[Segment]:
    """Return the oldest segments that retention or a deletion gives up."""
    expired = log.log.expired(
        now_ms=now_ms, deletable_index=min(deletable_index, _archived_index(log))
    )
    unwanted = log.log.below(log.machine.start_offset, deletable_index=deletable_index)
    return max(expired, unwanted, key=len)


def _archived_index(log: ReplicatedLog) -> int:
    """Return the first entry of the oldest segment that the topic's archive may lack."""
    archive = log.log.settings.archive
    if archive:
        archived_offset = log.machine.archived_offset(archive)
        for segment in log.log.segments:
            if segment.table.next_offset > archived_offset:
                return segment.first_index
    return log.log.next_index


def _damages_of(segment: Segment, pace: Callable[[int], None]) -> list[Damage]:
    return list(scrub_segment(segment, pace))


def _report(log: ReplicatedLog, segment: Segment, damage: Damage) -> None:
    logger.error(
        "damage found",
        extra={
            "log": log.name,
            "path": damage.path,
            "offset": damage.offset,
            "reason": damage.reason,
        },
    )
    if damage.is_log:
        segment.damage.append((damage.start, damage.end))

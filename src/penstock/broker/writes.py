"""Writes that are staged first and published together: exactly once, whatever dies in between.

A commit goes to the writer's home, partition 0 of a topic, on whichever node that is led. The home
makes sure that every partition holds what the run has staged there, decides that this run of the
epoch counts, and asks the partitions to publish it until all of them have. From the decision on
nobody but the home is needed: what dies is found and gone on with by whoever leads next. The states
behind this, with their crash cases, are in `cluster/staged_writes.py` and
`cluster/write_decisions.py`.

Across partitions a commit is atomic in the end, not at one moment: readers may see the records of
one partition before those of another.
"""

import asyncio
import logging
from uuid import UUID

import msgspec

from penstock.broker.calls import Calls
from penstock.broker.publish import Publisher
from penstock.broker.staged_writes import (
    TURN_S,
    PublishPart,
    Refusal,
    StageBatch,
    StagedParts,
    StagedRunStatus,
    check_epoch,
    check_write_name,
)
from penstock.clock import Clock
from penstock.cluster import Cluster, Partition, WriteDecided, WritePart, WriteRefused
from penstock.config import NodeOptions
from penstock.errors import InvalidRequest, PenstockError
from penstock.ids import TopicPartition

logger = logging.getLogger(__name__)

_PAUSE_MIN_S = 0.05
_PAUSE_MAX_S = 5.0


class WriteCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is to count, and what it has staged where."""

    home: str
    writer: str
    epoch: int
    run: str
    parts: tuple[WritePart, ...]


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the epoch is published everywhere, and which run of it; empty when unknown."""

    is_done: bool
    run: str


class WriterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a writer is."""

    committed_epoch: int | None
    publishing_epoch: int | None


class _Look(msgspec.Struct, frozen=True):
    home: str
    writer: str


class Writes:
    """The verbs that concern staged writes."""

    def __init__(
        self,
        cluster: Cluster,
        calls: Calls,
        publisher: Publisher,
        options: NodeOptions,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._calls = calls
        self._clock = clock
        self._parts = StagedParts(cluster, calls, publisher, options, clock)
        self._carrying: dict[tuple[TopicPartition, str], asyncio.Task[None]] = {}
        cluster.replicas.on_decided = self._carry_out_all
        calls.serve("writes.commit", WriteCommit, self._commit_here)
        calls.serve("writes.refuse", Refusal, self._refuse_here)
        calls.serve("writes.status", _Look, self._status_here)

    def start(self) -> None:
        """Begin to look for what has expired."""
        self._parts.start()

    async def close(self) -> None:
        """Stop whatever goes on; the next leaders do the rest."""
        tasks = list(self._carrying.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._parts.close()

    async def stage(self, batch: StageBatch) -> bool:
        """Keep a batch until its commit; False when the epoch is committed there already."""
        return await self._parts.stage(batch)

    async def staged(self, topic: str) -> list[StagedRunStatus]:
        """Return what is staged in the partitions of a topic."""
        return await self._parts.staged(topic)

    async def expire(self, partition: Partition) -> None:
        """Drop what nobody has touched for long and no home has decided for, on the leader."""
        await self._parts.expire(partition)

    # Committing.

    async def commit(self, commit: WriteCommit) -> Committed:
        """Publish what a run has staged, or what was decided for its epoch before.

        When that takes long the answer says so, and asking again waits for it.
        """
        check_write_name("writer", commit.writer)
        check_write_name("run", commit.run)
        check_epoch(commit.epoch)
        places = [(part.topic, part.partition) for part in commit.parts]
        if len(set(places)) < len(places):
            raise InvalidRequest("a commit names the same partition twice")
        home = TopicPartition(commit.home, 0)
        wait_ms = int(1000 * 2 * TURN_S)
        return await self._calls.ask(home, "writes.commit", commit, Committed, wait_ms=wait_ms)

    async def _commit_here(self, request: WriteCommit) -> Committed:
        home = TopicPartition(request.home, 0)
        while True:
            held = await self._held(home, request)
            if held is None:
                await self._drop_all(request)
                return Committed(is_done=True, run=self._finished_run(home, request))
            task = self._carry_out(home, held)
            done, _ = await asyncio.wait({task}, timeout=TURN_S)
            if not done:
                return Committed(is_done=False, run=held.run)
            task.result()
            # An older epoch may have been open: the one that is asked for comes after it.
            if held.epoch == request.epoch:
                if held.run != request.run:
                    await self._drop_all(request)
                return Committed(is_done=True, run=held.run)

    async def _held(self, home: TopicPartition, request: WriteCommit) -> WriteDecided | None:
        """Return the decision that holds, after making it; None when the epoch is finished."""
        writes = self._cluster.partition(home).writes
        known = writes.decisions_of(request.writer)
        if known is not None and known.open is not None:
            return known.open
        parts = tuple(self._identified(part) for part in request.parts)
        if known is None or known.finished_epoch < request.epoch:
            await asyncio.gather(*(self._parts.check(_of(request, part)) for part in parts))
        return await writes.decide(
            WriteDecided(request.writer, request.epoch, request.run, parts, self._clock.now_ms())
        )

    def _finished_run(self, home: TopicPartition, request: WriteCommit) -> str:
        """Return the run that has counted, if the epoch is the last one."""
        known = self._cluster.partition(home).writes.decisions_of(request.writer)
        is_last = known is not None and known.finished_epoch == request.epoch
        return known.finished_run if known is not None and is_last else ""

    def _identified(self, part: WritePart) -> WritePart:
        topic = self._cluster.metadata.topic(part.topic)
        return WritePart(part.topic, part.partition, part.stages, str(topic.topic_id))

    async def _drop_all(self, request: WriteCommit) -> None:
        """Let go of what a run that does not count has staged; where it is gone, that is cheap."""
        for part in request.parts:
            await self._drop(TopicPartition(part.topic, part.partition), request)

    async def _drop(self, place: TopicPartition, request: WriteCommit) -> None:
        try:
            await self._parts.drop(place, request.writer, request.run)
        except PenstockError as error:
            # It expires.
            logger.info("run is not dropped", extra={"log": str(place), "reason": str(error)})

    # Carrying out what was decided.

    def _carry_out_all(self, home: TopicPartition) -> None:
        """Go on with what is decided and not finished, on a home that this node leads."""
        for decision in self._cluster.partition(home).writes.decisions.open.values():
            self._carry_out(home, decision)

    def _carry_out(self, home: TopicPartition, decision: WriteDecided) -> asyncio.Task[None]:
        key = (home, decision.writer)
        task = self._carrying.get(key)
        if task is None:
            task = self._carrying[key] = asyncio.ensure_future(self._finish(home, decision))
            task.add_done_callback(lambda done: self._carried(key, done))
        return task

    def _carried(self, key: tuple[TopicPartition, str], task: asyncio.Task[None]) -> None:
        self._carrying.pop(key, None)
        if not task.cancelled() and task.exception() is not None:
            extra = {"log": str(key[0]), "writer": key[1], "reason": str(task.exception())}
            logger.warning("write is left to the next leader", extra=extra)

    async def _finish(self, home: TopicPartition, decision: WriteDecided) -> None:
        await asyncio.gather(*(self._publish(home, decision, part) for part in decision.parts))
        writes = self._cluster.partition(home).writes
        await writes.finish(decision.writer, decision.epoch, at_ms=self._clock.now_ms())

    async def _publish(self, home: TopicPartition, decision: WriteDecided, part: WritePart) -> None:
        """Ask a partition to publish its part until it has, or is no more."""
        request = PublishPart(decision.writer, decision.epoch, decision.run, part)
        pause_s = _PAUSE_MIN_S
        while True:
            self._cluster.partition(home).check_serving()
            try:
                if await self._parts.publish(request):
                    return
                pause_s = _PAUSE_MIN_S
            except PenstockError as error:
                if self._is_gone(part):
                    return
                extra = {"log": f"{part.topic}-{part.partition}", "reason": str(error)}
                logger.warning("write waits for a partition", extra=extra)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _is_gone(self, part: WritePart) -> bool:
        """True when the topic was deleted, whether or not there is another of its name."""
        return self._cluster.metadata.was_deleted(UUID(part.topic_id))

    # Giving up.

    async def abort(self, commit: WriteCommit) -> bool:
        """Let a run never count, and drop what it has staged; False when it was decided before.

        Which run has counted is remembered for the last epoch alone, so that False may also mean
        that a later one is committed.
        """
        refusal = Refusal(commit.home, commit.writer, commit.epoch, commit.run)
        home = TopicPartition(commit.home, 0)
        if not await self._calls.ask(home, "writes.refuse", refusal, bool):
            return False
        await self._drop_all(commit)
        committed_epoch = (await self.status(commit.home, commit.writer)).committed_epoch
        return committed_epoch is None or committed_epoch <= commit.epoch

    async def _refuse_here(self, request: Refusal) -> bool:
        writes = self._cluster.partition(TopicPartition(request.home, 0)).writes
        writes.decisions_of(request.writer)
        return await writes.refuse(
            WriteRefused(request.writer, request.epoch, request.run, self._clock.now_ms())
        )

    async def status(self, home: str, writer: str) -> WriterStatus:
        """Return how far a writer is; a writer that nobody knows has committed nothing."""
        place = TopicPartition(home, 0)
        return await self._calls.ask(place, "writes.status", _Look(home, writer), WriterStatus)

    async def _status_here(self, request: _Look) -> WriterStatus:
        writes = self._cluster.partition(TopicPartition(request.home, 0)).writes
        known = writes.decisions_of(request.writer)
        if known is None:
            return WriterStatus(committed_epoch=None, publishing_epoch=None)
        return WriterStatus(
            committed_epoch=known.finished_epoch if known.finished_epoch >= 0 else None,
            publishing_epoch=None if known.open is None else known.open.epoch,
        )


def _of(commit: WriteCommit, part: WritePart) -> PublishPart:
    return PublishPart(commit.writer, commit.epoch, commit.run, part)

"""What writers stage in partitions, on whichever node these are led: kept, published, dropped.

Publishing a run is asked for by the writer's home (`broker/writes.py`) until it is done, and may be
asked for twice at once or by a home that was deposed: the partition's state says what is left to
do, and one task at a time does it. A large run takes longer than a request may, so that an answer
says whether it is done.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence

import msgspec

from penstock.broker.calls import Calls
from penstock.broker.publish import Publisher
from penstock.clock import Clock
from penstock.cluster import Cluster, Partition, StagedBatch, WritePart, WriteStaged
from penstock.config import NodeOptions
from penstock.errors import InvalidRequest, PenstockError, TopicNotFound, WriteNotStaged
from penstock.ids import TopicPartition

logger = logging.getLogger(__name__)

NAME_MAX = 200
EPOCH_MAX = 2**62
# How long a request waits for what goes on without it.
TURN_S = 10.0
_READ_BYTES_MAX = 8 * 1024 * 1024
_SEQUENCE_MASK = 0x7FFFFFFF
_ROUNDS_PER_EXPIRY = 10
_ROUND_S_MAX = 60.0

Numbered = tuple[StagedBatch, int]


class StageBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch to be kept until its commit, with all its names."""

    topic: str
    partition: int
    writer: str
    epoch: int
    run: str
    stage: str
    number: int
    home: str
    batch: bytes

    @property
    def place(self) -> TopicPartition:
        """Where it is kept."""
        return TopicPartition(self.topic, self.partition)


class StagedRunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has staged in one partition."""

    partition: int
    writer: str
    epoch: int
    run: str
    batches: int
    records: int
    size_bytes: int
    touched_ms: int


class PublishPart(msgspec.Struct, frozen=True):
    """What one partition is to publish of an epoch."""

    writer: str
    epoch: int
    run: str
    part: WritePart


class _Drop(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    writer: str
    run: str
    before_ms: int


class _Look(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class Refusal(msgspec.Struct, frozen=True):
    """A run that is to be let go, unless its home has decided for it."""

    home: str
    writer: str
    epoch: int
    run: str


class StagedParts:
    """The verbs of partitions that are written to."""

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
        self._publisher = publisher
        self._options = options
        self._clock = clock
        self._publishing: dict[tuple[TopicPartition, str], asyncio.Task[None]] = {}
        self._tending: asyncio.Task[None] | None = None
        calls.serve("writes.stage", StageBatch, self._stage_here)
        calls.serve("writes.check", PublishPart, self._check_here)
        calls.serve("writes.publish", PublishPart, self._publish_here)
        calls.serve("writes.drop", _Drop, self._drop_here)
        calls.serve("writes.staged", _Look, self._staged_here)

    # Staging.

    async def stage(self, batch: StageBatch) -> bool:
        """Keep a batch until its commit; False when the epoch is committed there already."""
        for told, name in (("writer", batch.writer), ("run", batch.run), ("stage", batch.stage)):
            check_write_name(told, name)
        check_epoch(batch.epoch)
        return await self._calls.ask(batch.place, "writes.stage", batch, bool)

    async def _stage_here(self, request: StageBatch) -> bool:
        partition = self._cluster.partition(request.place)
        self._publisher.check(request.place, memoryview(request.batch))
        known = partition.writes.writer(request.writer)
        if known is None:
            producer_id = int(await self._cluster.new_producer_id())
        else:
            producer_id = known.producer_id
        event = WriteStaged(
            writer=request.writer,
            epoch=request.epoch,
            run=request.run,
            stage=request.stage,
            number=request.number,
            batch=request.batch,
            home=request.home,
            producer_id=producer_id,
            at_ms=self._clock.now_ms(),
        )
        bytes_max = self._options.write_stage_bytes_max
        return await partition.writes.stage(event, bytes_max=bytes_max)

    async def drop(self, place: TopicPartition, writer: str, run: str) -> None:
        """Let go of what a run has staged in a partition."""
        request = _Drop(*place, writer, run, self._clock.now_ms() + 1)
        await self._calls.ask(place, "writes.drop", request, bool)

    async def _drop_here(self, request: _Drop) -> bool:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        await partition.writes.drop(request.writer, request.run, before_ms=request.before_ms)
        return True

    async def staged(self, topic: str) -> list[StagedRunStatus]:
        """Return what is staged in the partitions of a topic."""
        found = await asyncio.gather(
            *(
                self._calls.ask(
                    TopicPartition(topic, number),
                    "writes.staged",
                    _Look(topic, number),
                    list[StagedRunStatus],
                )
                for number in range(self._cluster.metadata.topic(topic).partitions)
            )
        )
        return [status for each in found for status in each]

    async def _staged_here(self, request: _Look) -> list[StagedRunStatus]:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        partition.check_serving()
        return list(_statuses(partition))

    # Publishing.

    async def check(self, request: PublishPart) -> None:
        """Raise when a partition does not hold all that it is to publish."""
        await self._calls.ask(_place(request), "writes.check", request, bool)

    async def _check_here(self, request: PublishPart) -> bool:
        writes = self._cluster.partition(_place(request)).writes
        writer = writes.writer(request.writer)
        if writer is None or writer.done_epoch < request.epoch:
            writes.staged.batches(request.writer, request.run, request.part.stages)
        return True

    async def publish(self, request: PublishPart) -> bool:
        """Publish what a run has staged in a partition; False when that goes on."""
        wait_ms = int(1000 * TURN_S)
        place = _place(request)
        return await self._calls.ask(place, "writes.publish", request, bool, wait_ms=wait_ms)

    async def _publish_here(self, request: PublishPart) -> bool:
        key = (_place(request), request.writer)
        task = self._publishing.get(key)
        if task is None:
            task = self._publishing[key] = asyncio.ensure_future(self._publish(request))
            task.add_done_callback(lambda _: self._publishing.pop(key, None))
        done, _ = await asyncio.wait({task}, timeout=TURN_S)
        if done:
            task.result()
        return bool(done)

    async def _publish(self, request: PublishPart) -> None:
        place = _place(request)
        writes = self._cluster.partition(place).writes
        writer = writes.writer(request.writer)
        if writer is None:
            raise WriteNotStaged(f"{place} knows of no writer {request.writer!r}")
        if writer.done_epoch >= request.epoch:
            return
        batches = writes.staged.batches(request.writer, request.run, request.part.stages)
        sequence = writer.sequence + sum(batch.records for batch in batches)
        left = writes.unpublished(request.writer, request.run, request.part.stages)
        for chunk in _chunks(left):
            data = await writes.read(writer.producer_id, chunk)
            sent = [self._publisher.publish_checked(place, each) for each in data]
            await asyncio.gather(*(each.offset for each in sent))
        await writes.done(
            request.writer,
            request.epoch,
            sequence=sequence & _SEQUENCE_MASK,
            at_ms=self._clock.now_ms(),
        )

    # Letting go.

    def start(self) -> None:
        """Begin to look for what has expired."""
        self._tending = asyncio.ensure_future(self._tend())

    async def close(self) -> None:
        """Stop whatever goes on; the next leader does the rest."""
        tasks = [*self._publishing.values(), *filter(None, [self._tending])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tend(self) -> None:
        round_s = self._options.write_stage_expiry_ms / 1000 / _ROUNDS_PER_EXPIRY
        while True:
            await asyncio.sleep(min(round_s, _ROUND_S_MAX))
            for partition in self._cluster.partitions:
                if partition.log.is_serving:
                    try:
                        await self.expire(partition)
                    except PenstockError as error:
                        extra = {"log": str(partition.place), "reason": str(error)}
                        logger.warning("staged writes are not tended", extra=extra)

    async def expire(self, partition: Partition) -> None:
        """Drop what nobody has touched for long and no home has decided for."""
        now_ms = self._clock.now_ms()
        before_ms = now_ms - self._options.write_stage_expiry_ms
        for writer, state in list(partition.writes.staged.writers.items()):
            for run, staged in list(state.runs.items()):
                if staged.touched_ms < before_ms:
                    refusal = Refusal(staged.home, writer, staged.epoch, run)
                    if await self._is_refused(refusal):
                        await partition.writes.drop(writer, run, before_ms=before_ms)
        await partition.writes.forget(now_ms - self._options.writer_expiry_ms)

    async def _is_refused(self, refusal: Refusal) -> bool:
        try:
            home = TopicPartition(refusal.home, 0)
            return await self._calls.ask(home, "writes.refuse", refusal, bool)
        except TopicNotFound:
            # Its decisions went with the home.
            return True


def check_write_name(told: str, name: str) -> None:
    """Raise when a name of a writer, a run or a stage cannot be used."""
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable():
        raise InvalidRequest(
            f"{told} is {name[:40]!r} of {len(name)} characters, not 1 to {NAME_MAX} that can be"
            " printed"
        )


def check_epoch(epoch: int) -> None:
    """Raise when a number is not that of an epoch."""
    if not 0 <= epoch <= EPOCH_MAX:
        raise InvalidRequest(f"epoch is {epoch}, not 0 to {EPOCH_MAX}")


def _place(request: PublishPart) -> TopicPartition:
    return TopicPartition(request.part.topic, request.part.partition)


def _chunks(batches: Sequence[Numbered]) -> Iterator[list[Numbered]]:
    chunk: list[Numbered] = []
    size_bytes = 0
    for numbered in batches:
        if chunk and size_bytes + numbered[0].size_bytes > _READ_BYTES_MAX:
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(numbered)
        size_bytes += numbered[0].size_bytes
    if chunk:
        yield chunk


def _statuses(partition: Partition) -> Iterator[StagedRunStatus]:
    for name, writer in partition.writes.staged.writers.items():
        for run_name, run in writer.runs.items():
            batches = [batch for stage in run.stages.values() for batch in stage.values()]
            yield StagedRunStatus(
                partition=partition.place.partition,
                writer=name,
                epoch=run.epoch,
                run=run_name,
                batches=len(batches),
                records=sum(batch.records for batch in batches),
                size_bytes=sum(batch.size_bytes for batch in batches),
                touched_ms=run.touched_ms,
            )

"""Consumer groups: carries commands to the shard of their group, and its effects out.

Every group belongs to one shard, chosen by its name; every shard has a log of its own. The shard is
plain code: this module gives it commands, the time and committed events, proposes what it wants to
persist, and wakes those who wait for its replies.

When the disk runs full, events that were proposed fail and may still be committed, by the other
replicas or when there is room again. The shard is not led until that is decided: what it knows of
the groups would rest on events that it has given up, or lack those that come true.
"""

import asyncio
import itertools
import uuid
from binascii import crc32
from collections.abc import Callable, Sequence

import msgspec

from penstock.clock import Clock
from penstock.cluster import RecordlessMachine, ReplicatedLog, Topic, Workplace
from penstock.config import NodeOptions
from penstock.errors import (
    Corruption,
    DiskFull,
    InvalidGroupId,
    NotCoordinator,
    PenstockError,
    ShuttingDown,
    Unavailable,
)
from penstock.groups import (
    Answer,
    Command,
    Effect,
    GroupLimits,
    GroupShard,
    ListGroups,
    Now,
    Persist,
    Reply,
    TopicInfo,
)
from penstock.ids import EntryIndex, TopicPartition
from penstock.log import StateEntry
from penstock.record import Buffer


class CommitsAsked(msgspec.Struct, frozen=True):
    """Groups that have committed a position behind an offset of a partition."""

    topic: str
    partition: int
    offset: int


class GroupCommit(msgspec.Struct, frozen=True):
    """The last commit of a group in a partition."""

    group: str
    offset: int
    at_ms: int


class ShardMachine(RecordlessMachine):
    """The machine of a shard's log. Effects of committed events go to `carry_out`."""

    def __init__(self, limits: GroupLimits) -> None:
        self._limits = limits
        self.shard = GroupShard(limits)
        self.carry_out: Callable[[Sequence[Effect]], None] | None = None

    def apply_state(self, entry: StateEntry) -> None:
        """Apply an event, and answer those who waited for it."""
        effects = self.shard.apply(entry.payload)
        if self.carry_out is not None:
            self.carry_out(effects)

    def snapshot(self) -> bytes:
        """Return the durable state of the shard."""
        return self.shard.snapshot()

    def restore(self, payload: Buffer, index: EntryIndex) -> None:
        """Replace the state by that of a snapshot."""
        del index
        self.shard = GroupShard.restore(self._limits, bytes(payload))


class Groups:
    """All consumer groups of a node."""

    def __init__(self, options: NodeOptions, workplace: Workplace) -> None:
        self._workplace = workplace
        self._limits = GroupLimits(
            session_ms_min=options.group_session_timeout_min_ms,
            session_ms_max=options.group_session_timeout_max_ms,
            initial_rebalance_ms=options.group_initial_rebalance_delay_ms,
            consumer_session_ms=options.consumer_session_timeout_ms,
            consumer_heartbeat_ms=options.consumer_heartbeat_interval_ms,
            offsets_retention_ms=options.offsets_retention_ms,
        )
        self._machines = [ShardMachine(self._limits) for _ in range(options.group_shards)]
        self._drivers: dict[int, _ShardDriver] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._tickets = itertools.count(1)

    def machine(self, shard: int) -> ShardMachine:
        """Return a new machine for a shard, to be driven by the log that is being opened."""
        machine = self._machines[shard] = ShardMachine(self._limits)
        return machine

    def leadership_changed(self, shard: int, log: ReplicatedLog) -> None:
        """Lead a shard, or stop leading it, as its log does."""
        driver = self._drivers.get(shard)
        if driver is None or driver.log is not log:
            if driver is not None:
                driver.close(NotCoordinator("the shard of the group was opened again"))
            driver = self._drivers[shard] = _ShardDriver(
                self._machines[shard], log, self._workplace
            )
        if log.is_serving and not driver.is_leading:
            # A shard that was restored from a snapshot has not been told yet.
            driver.topics_changed(self._topics)
        driver.lead(log.is_serving)

    def topics_changed(self, topics: Sequence[Topic]) -> None:
        """Tell all groups which topics there are."""
        self._topics = {topic.name: _info(topic) for topic in topics}
        for driver in self._drivers.values():
            driver.topics_changed(self._topics)

    def shard_of(self, group_id: str) -> int:
        """Return the shard that keeps a group."""
        return crc32(group_id.encode()) % len(self._machines)

    async def ask(self, group_id: str, command: Callable[[int], Command]) -> Answer:
        """Carry out a command on a group; `command` is given the ticket to put into it."""
        return await self._driver_of(group_id).ask(command, next(self._tickets))

    async def ask_currently(self, group_id: str, command: Callable[[int], Command]) -> Answer:
        """The same for a command that changes nothing, and must know of all that others changed."""
        driver = await self._current_driver_of(group_id)
        return await driver.ask(command, next(self._tickets))

    async def is_known(self, group_id: str) -> bool:
        """Whether there is a group of this name, of either protocol; its shard alone can tell."""
        driver = await self._current_driver_of(group_id)
        return driver.has_group(group_id)

    async def _current_driver_of(self, group_id: str) -> "_ShardDriver":
        driver = self._driver_of(group_id)
        try:
            await driver.log.wait_current()
        except Unavailable as error:
            reason = f"group {group_id!r} may be kept by another node: {error}"
            raise NotCoordinator(reason) from error
        return driver

    def _driver_of(self, group_id: str) -> "_ShardDriver":
        if not group_id:
            raise InvalidGroupId("a consumer group needs a name, an empty one was given")
        driver = self._drivers.get(self.shard_of(group_id))
        if driver is None:
            raise NotCoordinator(f"group {group_id!r} is kept by other nodes")
        return driver

    async def list_groups(self, states: frozenset[str], types: frozenset[str]) -> list[Answer]:
        """Ask every shard for its groups."""
        return [
            await driver.ask(
                lambda ticket: ListGroups(ticket=ticket, states=states, types=types),
                next(self._tickets),
            )
            for driver in self._drivers.values()
            if driver.is_leading
        ]

    async def commits(self, asked: CommitsAsked) -> list[GroupCommit]:
        """Return the commits of groups that this node coordinates."""
        place = TopicPartition(asked.topic, asked.partition)
        return [
            GroupCommit(group_id, row.offset, row.commit_ms)
            for shard, driver in self._drivers.items()
            if driver.is_leading
            for group_id, row in self._machines[shard].shard.positions_in(place).items()
            if row.offset > asked.offset
        ]

    def new_member_id(self, client_id: str) -> str:
        """Draw an id for a member that has none."""
        return f"{client_id or 'consumer'}-{uuid.uuid4()}"

    def close(self) -> None:
        """Stop all timers and fail those who wait."""
        for driver in self._drivers.values():
            driver.close(ShuttingDown("the node is stopping"))


def _info(topic: Topic) -> TopicInfo:
    return TopicInfo(topic.public_id, topic.partitions, topic.era, topic.positions)


# How soon a shard is looked at again whose events may or may not come true.
_LOOK_AGAIN_S = 0.1


class _ShardDriver:
    """Runs one shard on the event loop."""

    def __init__(self, machine: ShardMachine, log: ReplicatedLog, workplace: Workplace) -> None:
        self._machine = machine
        self.log = log
        self._loop = workplace.loop
        self._clock: Clock = workplace.clock
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.is_leading = False
        # Set while the log is led and the fate of some events is not known.
        self._decision: asyncio.TimerHandle | None = None
        machine.carry_out = self._carry_out

    @property
    def _shard(self) -> GroupShard:
        return self._machine.shard

    def lead(self, is_leading: bool) -> None:
        """Lead the shard from now on, or no more."""
        if not is_leading:
            self._stop_waiting()
        if is_leading == self.is_leading or self._decision is not None:
            return
        self.is_leading = is_leading
        if is_leading:
            self._carry_out(self._shard.became_leader(self._now()))
        else:
            self._carry_out(self._shard.resigned())

    def topics_changed(self, topics: dict[str, TopicInfo]) -> None:
        """Tell the shard which topics there are."""
        self._carry_out(self._shard.topics_changed(topics, self._now()))

    def has_group(self, group_id: str) -> bool:
        """Whether the shard has a group; raises when another node may know better."""
        if not self.is_leading:
            raise NotCoordinator("this node does not lead the shard of this group")
        return self._shard.has_group(group_id)

    async def ask(self, command: Callable[[int], Command], ticket: int) -> Answer:
        """Carry out a command and wait for its answer."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[ticket] = answer
        try:
            self._carry_out(self._shard.step(command(ticket), self._now()))
            return await answer
        finally:
            self._waiting.pop(ticket, None)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply():
                    self._reply(effect)
                case Persist() if self._shard.expects(effect):
                    self._persist(effect)
        self._set_timer()

    def _reply(self, reply: Reply) -> None:
        waiter = self._waiting.get(reply.ticket)
        if waiter is None or waiter.done():
            # The client went away before its answer was ready.
            return
        if isinstance(reply.answer, PenstockError):
            waiter.set_exception(reply.answer)
        else:
            waiter.set_result(reply.answer)

    def _persist(self, persist: Persist) -> None:
        try:
            committed = self.log.propose_state(persist.event)
        except PenstockError as error:
            self._abandon(persist, error)
            return
        committed.add_done_callback(lambda done: self._check_commit(persist, done))

    def _check_commit(self, persist: Persist, done: asyncio.Future[None]) -> None:
        error = done.exception()
        if isinstance(error, DiskFull):
            self._step_aside()
        elif isinstance(error, PenstockError):
            self._abandon(persist, error)

    def _step_aside(self) -> None:
        """Lead no more until it is known which of the events in flight come true."""
        if self.is_leading:
            self.lead(False)
            self._decision = self._loop.call_later(_LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._decision = None
        if not self.log.is_serving:
            return
        try:
            self.log.check_writable()
        except PenstockError:
            self._decision = self._loop.call_later(_LOOK_AGAIN_S, self._look_again)
        else:
            self.lead(True)

    def _stop_waiting(self) -> None:
        if self._decision is not None:
            self._decision.cancel()
            self._decision = None

    def _abandon(self, persist: Persist, error: PenstockError) -> None:
        """Give up an event that the log did not take, or that another leader has replaced.

        Members of groups are told that the group is kept elsewhere, and look for its coordinator:
        for what only leaders of partitions say, clients in Java give up for good.
        """
        if isinstance(error, Unavailable | Corruption) and not isinstance(error, ShuttingDown):
            error = NotCoordinator(f"the group's log cannot take this now: {error}")
        self._carry_out(self._shard.abandoned(persist, error, self._now()))

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), int(self._clock.steady_s() * 1000))

    def _set_timer(self) -> None:
        deadline_ms = self._shard.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and deadline_ms == self._timer_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, deadline_ms - self._now().steady_ms) / 1000
        self._timer = self._loop.call_later(delay_s, self._tick)
        self._timer_ms = deadline_ms

    def _tick(self) -> None:
        self._timer = None
        self._carry_out(self._shard.tick(self._now()))

    def close(self, reason: PenstockError) -> None:
        """Stop the timers and fail those who wait."""
        self._stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(reason)

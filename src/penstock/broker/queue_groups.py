"""Queue groups as a whole: creating, configuring, looking at, resetting and deleting them.

The cluster's metadata names the groups of a topic and keeps their settings. Where a group stands in
a partition is in the partition's own log. A group that begins at the start has no books in a
partition before it first receives from it, and neither has it in partitions that are added later.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Literal, TypeVar

import msgspec

from penstock.broker.calls import Calls
from penstock.broker.given_settings import check_given_settings
from penstock.broker.queue_values import (
    BlockedKeyStatus,
    GroupStatus,
    InFlight,
    PartitionGroupStatus,
    ResetPlan,
)
from penstock.cluster import (
    Cluster,
    ConfigureGroup,
    ForgetGroup,
    Partition,
    PartitionQueue,
    Topic,
    check_group_name,
    check_group_setting_names,
    check_group_settings,
    resolve_group_settings,
)
from penstock.delivery import GroupSettings, Ledger
from penstock.errors import GroupNotFound, InvalidRequest, OffsetOutOfRange, Unavailable
from penstock.ids import TopicPartition
from penstock.record import Record

T = TypeVar("T")

_BLOCKED_KEYS_MAX = 100
IN_FLIGHT_LISTED_MAX = 10_000

ResetTarget = Literal["earliest", "latest", "offset", "time"]


class _Create(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    group: str


class _Look(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    group: str
    count_max: int = 0


class _Reset(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    group: str
    to: ResetTarget
    value: int
    is_dry_run: bool


class QueueGroups:
    """The verbs that concern groups rather than messages."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        calls.serve("group.create", _Create, self._create_here)
        calls.serve("group.status", _Look, self._status_here)
        calls.serve("group.in_flight", _Look, self._in_flight_here)
        calls.serve("group.reset", _Reset, self._reset_here)
        calls.serve("group.delete", _Look, self._delete_here)

    async def groups(self, topic: str) -> list[str]:
        """Return the names of a topic's queue groups."""
        return sorted(self._cluster.metadata.topic(topic).groups)

    def settings_of(self, topic: str, group: str) -> GroupSettings:
        """Return the settings that a group has, or would have."""
        return self._cluster.replicas.group_settings(topic, group)

    def is_known(self, topic: str, group: str) -> bool:
        """Whether a topic has a group of this name."""
        return group in self._cluster.metadata.topic(topic).groups

    async def create(
        self, topic: str, group: str, changed: Mapping[str, str] | None = None
    ) -> GroupSettings:
        """Let a topic have a queue group; one that exists is left where it is."""
        return await self.configure(topic, group, changed or {})

    async def configure(
        self, topic: str, group: str, changed: Mapping[str, str], removed: Sequence[str] = ()
    ) -> GroupSettings:
        """Change settings of a group, creating it where it does not exist."""
        check_group_name(group)
        check_group_settings(changed)
        check_given_settings(topic, changed)
        check_group_setting_names(removed)
        found = self._cluster.metadata.topic(topic)
        if group not in found.groups:
            await self._begin(found, group, changed)
        command = ConfigureGroup(found.topic_id, group, dict(changed), list(removed))
        await self._cluster.change(command)
        return self.settings_of(topic, group)

    async def _begin(self, topic: Topic, group: str, changed: Mapping[str, str]) -> None:
        """Let a group that begins at the end begin there in all partitions, before it is known.

        After a crash in between it is begun again, and is left where it began first.
        """
        settings = resolve_group_settings(topic.name, topic.settings, changed)
        if settings.start == "latest":
            await self._in_all(
                self._calls.ask(
                    TopicPartition(topic.name, number),
                    "group.create",
                    _Create(topic.name, number, group),
                    bool,
                )
                for number in range(topic.partitions)
            )

    async def delete(self, topic: str, group: str) -> None:
        """Forget a group; its consumers begin a new one if they go on.

        The cluster forgets it last: as long as a partition still keeps books of it, by which the
        next group of its name would leave messages out, it is there to be deleted again.
        """
        found = self._existing(topic, group)
        await self._in_all(
            self._calls.ask(
                TopicPartition(topic, number), "group.delete", _Look(topic, number, group), bool
            )
            for number in range(found.partitions)
        )
        await self._cluster.change(ForgetGroup(found.topic_id, group))

    # Looking.

    async def status(self, topic: str, group: str) -> GroupStatus:
        """Return how far a group is, in every partition that has a leader."""
        found = self._existing(topic, group)
        answers = await self._ask_all(found, group, "group.status", PartitionGroupStatus)
        return GroupStatus(topic, group, answers)

    async def in_flight(self, topic: str, group: str, *, count_max: int) -> list[InFlight]:
        """Return messages that are out, up to `count_max`."""
        found = self._existing(topic, group)
        if not 1 <= count_max <= IN_FLIGHT_LISTED_MAX:
            raise InvalidRequest(
                f"count_max is {count_max}, not between 1 and {IN_FLIGHT_LISTED_MAX}"
            )
        answers = await self._ask_all(
            found, group, "group.in_flight", list[InFlight], count_max=count_max
        )
        return [each for answer in answers for each in answer][:count_max]

    # Beginning anew.

    async def reset(
        self,
        topic: str,
        group: str,
        *,
        to: ResetTarget,
        value: int = 0,
        partition: int | None = None,
        is_dry_run: bool = False,
    ) -> list[ResetPlan]:
        """Let a group begin anew; `value` is the offset or the time in ms that `to` speaks of.

        Receipts that are out hold no more, and attempts are counted from the start.
        """
        found = self._existing(topic, group)
        numbers = range(found.partitions) if partition is None else [partition]
        return await self._in_all(
            self._calls.ask(
                TopicPartition(topic, number),
                "group.reset",
                _Reset(topic, number, group, to, value, is_dry_run),
                ResetPlan,
            )
            for number in numbers
        )

    async def purge(self, topic: str, group: str) -> list[ResetPlan]:
        """Be done with everything that is there."""
        return await self.reset(topic, group, to="latest")

    def _existing(self, topic: str, group: str) -> Topic:
        found = self._cluster.metadata.topic(topic)
        if group not in found.groups:
            raise GroupNotFound(f"topic {topic!r} has no queue group {group!r}")
        return found

    async def _ask_all(
        self, topic: Topic, group: str, verb: str, reply: type[T], *, count_max: int = 0
    ) -> list[T]:
        """Ask the leader of every partition; those that have none are left out, unless none has."""
        answers = await asyncio.gather(
            *(
                self._calls.ask(
                    TopicPartition(topic.name, number),
                    verb,
                    _Look(topic.name, number, group, count_max),
                    reply,
                )
                for number in range(topic.partitions)
            ),
            return_exceptions=True,
        )
        found = [answer for answer in answers if not isinstance(answer, BaseException)]
        for answer in answers:
            # Nothing of a group that nobody knows about is not the same as nothing that waits.
            is_passing = isinstance(answer, Unavailable) and found
            if isinstance(answer, BaseException) and not is_passing:
                raise answer
        return found

    @staticmethod
    async def _in_all(asked: Iterable[Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*asked))

    # On the leader.

    def _partition(self, request: _Create | _Look | _Reset) -> Partition:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        partition.check_serving()
        return partition

    async def _current_partition(self, request: _Look) -> Partition:
        """Return a partition whose books tell all that anybody was told."""
        partition = self._partition(request)
        await partition.wait_current()
        await partition.queue.wait_leases(request.group)
        return partition

    async def _create_here(self, request: _Create) -> bool:
        partition = self._partition(request)
        await partition.queue.create_group(request.group, partition.high_watermark)
        return True

    async def _delete_here(self, request: _Look) -> bool:
        await self._partition(request).queue.delete_group(request.group)
        return True

    async def _status_here(self, request: _Look) -> PartitionGroupStatus:
        partition = await self._current_partition(request)
        ledger = _books(partition, request.group)
        start, end = int(partition.start_offset), int(partition.high_watermark)
        floor = min(max(ledger.floor, start), end)
        oldest = _oldest(partition, ledger, floor)
        return PartitionGroupStatus(
            partition=request.partition,
            floor=floor,
            end=end,
            unsettled=ledger.unsettled(end) - max(0, floor - ledger.floor),
            in_flight=ledger.in_flight,
            waiting=len(ledger.waiting),
            dying=len(ledger.dying),
            oldest_unsettled_ms=oldest.timestamp if oldest else None,
            blocked_keys=_blocked_keys(partition.queue, request),
        )

    async def _in_flight_here(self, request: _Look) -> list[InFlight]:
        partition = await self._current_partition(request)
        ledger = _books(partition, request.group)
        found = (
            InFlight(
                f"{request.partition}-{offset}",
                request.partition,
                offset,
                lease.consumer,
                ledger.attempts(offset) + 1,
                lease.at_ms,
                lease.deadline_of(offset),
            )
            for lease in list(ledger.leases.values())
            for offset in lease.live_offsets()
        )
        return list(islice(found, request.count_max))

    async def _reset_here(self, request: _Reset) -> ResetPlan:
        partition = self._partition(request)
        ledger = _books(partition, request.group)
        plan = ResetPlan(request.partition, ledger.floor, _target(partition, request))
        if not request.is_dry_run:
            await partition.queue.create_group(request.group, plan.target)
            await partition.queue.reset_group(request.group, plan.target)
        return plan


def _books(partition: Partition, group: str) -> Ledger:
    """Return the books of a group; one that never received here stands at the start."""
    return partition.queue.groups.get(group) or Ledger(partition.start_offset)


def _oldest(partition: Partition, ledger: Ledger, floor: int) -> Record | None:
    """Return the first message that a group is not done with. There may be none at its floor:
    duplicates leave gaps, and so does compaction, over which a group moves when it gets there."""
    records, end = partition.queue.records, int(partition.high_watermark)
    found = records.next_from(floor, end)
    while found is not None and ledger.is_settled(found.offset):
        found = records.next_from(ledger.next_unsettled(found.offset), end)
    return found


def _blocked_keys(queue: PartitionQueue, request: _Look) -> list[BlockedKeyStatus]:
    dispatcher = queue.dispatcher(request.group) if request.group in queue.groups else None
    if dispatcher is None:
        return []
    found = []
    for blocked in dispatcher.blocked_keys(_BLOCKED_KEYS_MAX):
        record = queue.records.get(blocked.blocker)
        found.append(
            BlockedKeyStatus(
                record.key if record else None,
                f"{request.partition}-{blocked.blocker}",
                blocked.waiting,
            )
        )
    return found


def _target(partition: Partition, request: _Reset) -> int:
    start, end = int(partition.start_offset), int(partition.high_watermark)
    match request.to:
        case "earliest":
            return start
        case "latest":
            return end
        case "offset":
            if not start <= request.value <= end:
                raise OffsetOutOfRange(
                    f"offset {request.value} lies outside {start} to {end} of partition"
                    f" {request.partition}"
                )
            return request.value
        case "time":
            found = partition.find_time(request.value)
            return end if found is None else int(found.offset)

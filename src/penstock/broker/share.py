"""Share groups: Kafka's own door to per-message delivery (KIP-932).

The group is a queue group of the same name; a record that a member acquires is leased to it.
Membership is kept by the node that coordinates the group, sessions by the leaders of the partitions
that a member fetches from. Both are soft: when they are lost, the member joins or opens a session
again, and what it had acquired comes back when its lease ends.

A session ends with the connection that used it last, as with Kafka: a member that is killed holds
up nobody, and what it held goes to others at once. A member that closes its session has not begun
with what it still holds, so that costs no attempt. One whose connection is lost may have been
killed by a record: each that went out to it has cost an attempt, or a record that kills whoever
reads it would never become a dead letter. Kafka counts neither.
"""

import asyncio
import itertools
import uuid
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from penstock.broker.queues import Queues
from penstock.broker.share_settings import check_share_settings, queue_group_settings
from penstock.clock import Clock
from penstock.cluster import (
    Cluster,
    ConfigureShareGroup,
    ForgetShareGroup,
    PartitionQueue,
    Return,
)
from penstock.config import NodeOptions
from penstock.delivery import Part
from penstock.errors import (
    GroupNotEmpty,
    GroupNotFound,
    InvalidShareSessionEpoch,
    LeaseExpired,
    PenstockError,
    ShareSessionNotFound,
    TopicIdMismatch,
    TopicNotFound,
)
from penstock.groups import ShareAssignment, ShareBeat, ShareGroup, TopicInfo
from penstock.ids import TopicPartition
from penstock.record import Record

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
_SESSIONS_MAX = 10_000
# What Kafka's clients mean by no limit.
_BYTES_MAX = 2**31 - 1


class Acknowledgement(IntEnum):
    """What a member says about a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What a member says about consecutive records of a partition; one answer may be for all."""

    place: TopicPartition
    start: int
    end: int
    answers: Sequence[int]

    @property
    def meant(self) -> int:
        """How many records it takes for held."""
        if len(self.answers) == 1:
            return 0 if self.answers[0] == Acknowledgement.GAP else self.end - self.start
        return sum(answer != Acknowledgement.GAP for answer in self.answers)


@dataclass(frozen=True, slots=True)
class Acquired:
    """A record that a member now holds, and the how manieth time it goes out."""

    record: Record
    attempt: int


@dataclass(slots=True)
class SharePartition:
    """What a fetch found in one partition, of the topic that the member knows by this id."""

    place: TopicPartition
    topic_id: uuid.UUID
    acquired: list[Acquired] = field(default_factory=list)
    error: PenstockError | None = None


@dataclass(slots=True)
class _Session:
    epoch: int = OPEN_EPOCH
    places: dict[TopicPartition, uuid.UUID] = field(default_factory=dict)
    """What the member reads, and the id by which it knows each topic."""
    held: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    """Offsets that the member has acquired, and the delivery of each."""
    unsent: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    """The same of a request that is not answered yet: the member has seen none of them."""
    connection: int | None = None
    """The one that has used the session last."""

    def hand_out(self, found: Iterable[SharePartition]) -> None:
        """Note that records go out with an answer."""
        for partition in found:
            unsent = self.unsent.pop(partition.place, None)
            if unsent:
                self.held.setdefault(partition.place, {}).update(unsent)


class _Asked(NamedTuple):
    """What a member asks for, and what is left of it when partitions have given some."""

    session: _Session
    group_id: str
    member_id: str
    records_max: int
    bytes_max: int

    def without(self, acquired: Sequence[Acquired]) -> "_Asked":
        records = [each.record for each in acquired]
        size_bytes = sum([len(each.value or b"") + len(each.key or b"") for each in records])
        return self._replace(
            records_max=self.records_max - len(acquired), bytes_max=self.bytes_max - size_bytes
        )


class ShareGroups:
    """The verbs of share groups."""

    def __init__(
        self, cluster: Cluster, queues: Queues, options: NodeOptions, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._queues = queues
        self._clock = clock
        self._session_ms = options.consumer_session_timeout_ms
        self.heartbeat_ms = options.consumer_heartbeat_interval_ms
        self._groups: dict[str, ShareGroup] = {}
        self._sessions: OrderedDict[tuple[str, str], _Session] = OrderedDict()
        self._by_connection: dict[int, set[tuple[str, str]]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._turn = itertools.count()

    # Members.

    def names(self) -> list[str]:
        """Return the groups that have joined once, whoever coordinates them."""
        return [each for each in self._cluster.metadata.share_groups if self.is_name(each)]

    def is_name(self, group_id: str) -> bool:
        """True for a group that has joined once. One that was only configured may be any kind."""
        metadata = self._cluster.metadata
        return group_id in metadata.share_groups and (
            group_id in self._groups
            or group_id in metadata.joined_share_groups
            or any(group_id in topic.groups for topic in metadata.topics.values())
        )

    def members_of(self, group_id: str) -> ShareGroup:
        """Return the members of a group that this node coordinates; an empty group has none."""
        group = self._groups.get(group_id)
        if group is None:
            if group_id not in self._cluster.metadata.share_groups:
                raise GroupNotFound(f"there is no share group {group_id!r}")
            return ShareGroup(self._session_ms)
        group.forget_silent(self._steady_ms())
        return group

    def _steady_ms(self) -> int:
        """The time by which silence is measured, whatever is done to the clock."""
        return int(self._clock.steady_s() * 1000)

    def topics_of(self, group_id: str) -> list[str]:
        """Return the topics in which a group has a position."""
        self.members_of(group_id)
        topics = self._cluster.metadata.topics.values()
        return sorted(topic.name for topic in topics if group_id in topic.groups)

    def check_empty(self, group_id: str) -> None:
        """Raise when a group is in use, or does not exist."""
        count = len(self.members_of(group_id).members)
        if count:
            raise GroupNotEmpty(f"share group {group_id!r} has {count} members")

    async def move_to(self, group_id: str, place: TopicPartition, offset: int) -> None:
        """Let a group go on at an offset of a partition."""
        partitions = self._cluster.metadata.topic(place.topic).partitions
        if not 0 <= place.partition < partitions:
            raise TopicNotFound(f"topic {place.topic!r} has {partitions} partitions, not {place}")
        await self._make_sure_of(place.topic, group_id)
        await self._queues.reset_group(
            place.topic, group_id, to="offset", value=offset, partition=place.partition
        )

    async def delete(self, group_id: str) -> None:
        """Forget an empty group with its positions and settings.

        The name goes last: after a crash in between, the deletion can be asked for again.
        """
        self.check_empty(group_id)
        for topic in self.topics_of(group_id):
            await self._queues.delete_group(topic, group_id)
        await self._cluster.change(ForgetShareGroup(group_id))

    async def heartbeat(self, group_id: str, beat: ShareBeat) -> tuple[int, ShareAssignment | None]:
        """Note that a member lives; return its epoch, and its assignment when that is news."""
        group = self._groups.setdefault(group_id, ShareGroup(self._session_ms))
        topics = {
            name: TopicInfo(topic.public_id, topic.partitions)
            for name, topic in self._cluster.metadata.topics.items()
        }
        epoch, assignment = group.heartbeat(beat, topics, self._steady_ms())
        if group.members and group_id not in self._cluster.metadata.joined_share_groups:
            await self._cluster.change(ConfigureShareGroup(group_id, has_joined=True))
        for name in beat.topics or ():
            await self._make_sure_of(name, group_id)
        if not group.members:
            del self._groups[group_id]
        return epoch, assignment

    async def _make_sure_of(self, topic: str, group_id: str) -> None:
        found = self._cluster.metadata.topics.get(topic)
        if found is not None and group_id not in found.groups:
            given = self._cluster.metadata.share_groups.get(group_id, {})
            await self._queues.create_group(topic, group_id, queue_group_settings(given))

    async def configure(
        self,
        group_id: str,
        changed: dict[str, str],
        removed: Sequence[str],
        *,
        is_dry_run: bool = False,
    ) -> None:
        """Change settings of a group, for the topics that it reads now and later."""
        check_share_settings(changed)
        if is_dry_run:
            return
        await self._cluster.change(ConfigureShareGroup(group_id, changed, list(removed)))
        given = queue_group_settings(self._cluster.metadata.share_groups.get(group_id, {}))
        for topic in list(self._cluster.metadata.topics.values()):
            if group_id in topic.groups:
                await self._queues.configure_group(topic.name, group_id, given)

    def settings(self, group_id: str) -> Mapping[str, str]:
        """Return what a group was told."""
        return self._cluster.metadata.share_groups.get(group_id, {})

    def lease_ms(self, group_id: str, places: Iterable[TopicPartition]) -> int:
        """Return how long members hold records, in the first of these topics that exists."""
        topics = self._cluster.metadata.topics
        for place in places:
            if place.topic in topics:
                return self._queues.settings_of(place.topic, group_id).lease_ms
        return int(queue_group_settings(self.settings(group_id))["delivery.lease.ms"])

    # Sessions.

    def open_session(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        *,
        added: Mapping[TopicPartition, uuid.UUID],
        forgotten: Container[tuple[uuid.UUID, int]],
        connection: int,
    ) -> None:
        """Begin or go on with a member's session at this node.

        Partitions to forget are given by the ids of their topics, which may be gone. The session
        ends when it is closed, or with the connection, unless another one has used it since.
        """
        key = (group_id, member_id)
        session = self._sessions.get(key)
        if epoch == OPEN_EPOCH:
            known = self._take_session(key)
            session = _Session(held=known.held, unsent=known.unsent) if known else _Session()
            self._sessions[key] = session
            if len(self._sessions) > _SESSIONS_MAX:
                # Members whose machine died end no session; what they held comes back by its lease.
                self._take_session(next(iter(self._sessions)))
        elif session is None:
            raise ShareSessionNotFound(f"member {member_id!r} has no share session here")
        elif epoch not in (session.epoch + 1, CLOSE_EPOCH):
            raise InvalidShareSessionEpoch(
                f"member {member_id!r} sent epoch {epoch} of its session, not {session.epoch + 1}"
            )
        self._sessions.move_to_end(key)
        self._use(key, session, connection)
        session.epoch = epoch
        # A topic that was created anew is forgotten and added in one request.
        session.places = {
            place: topic_id
            for place, topic_id in session.places.items()
            if (topic_id, place.partition) not in forgotten
        } | dict(added)

    def _use(self, key: tuple[str, str], session: _Session, connection: int) -> None:
        if session.connection != connection:
            self._unlink(key, session)
            session.connection = connection
            self._by_connection.setdefault(connection, set()).add(key)

    def _unlink(self, key: tuple[str, str], session: _Session) -> None:
        """Let a session not depend on its connection any more."""
        if session.connection is not None:
            used = self._by_connection[session.connection]
            used.discard(key)
            if not used:
                del self._by_connection[session.connection]
            session.connection = None

    def _take_session(self, key: tuple[str, str]) -> _Session | None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._unlink(key, session)
        return session

    def connection_lost(self, connection: int, *, is_ours: bool = False) -> None:
        """End the sessions that a connection has used last.

        What has gone out to their members has cost an attempt, unless it was ours to close it.
        """
        for group_id, member_id in tuple(self._by_connection.get(connection, ())):
            session = self._take_session((group_id, member_id))
            assert session is not None, "a connection names sessions that exist"
            leaving = asyncio.ensure_future(self._give_back(group_id, session, is_lost=not is_ours))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Stop; what members hold that are leaving now comes back when its lease ends."""
        leaving = tuple(self._leaving)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)

    async def close_session(self, group_id: str, member_id: str) -> None:
        """End a session; what the member still holds goes to others at once."""
        session = self._take_session((group_id, member_id))
        if session is not None:
            await self._give_back(group_id, session, is_lost=False)

    async def _give_back(self, group_id: str, session: _Session, *, is_lost: bool) -> None:
        reason = "the member's connection was lost" if is_lost else "the member's session ended"
        # A request that is being cancelled may still add to it.
        for place in {**session.held, **session.unsent}:
            items = [
                Return(delivery, offset, 0, reason, is_counted=is_lost)
                for offset, delivery in session.held.get(place, {}).items()
            ] + [
                Return(delivery, offset, 0, reason, is_counted=False)
                for offset, delivery in session.unsent.get(place, {}).items()
            ]
            if not items:
                continue
            try:
                await self._queue(place).nack(group_id, items)
            except PenstockError:
                # The topic is gone or led elsewhere: leases that are not ended expire.
                continue

    # Records.

    async def acknowledge(self, group_id: str, member_id: str, said: Acknowledged) -> None:
        """Carry out what a member says about records; raises when it does not hold one of them."""
        session = self._sessions.get((group_id, member_id))
        held = session.held.get(said.place, {}) if session else {}
        by_answer: dict[int, list[tuple[int, int]]] = {}
        for offset, answer in _answers_of(said, held):
            if answer == Acknowledgement.GAP:
                held.pop(offset, None)
            elif offset in held:
                by_answer.setdefault(answer, []).append((held[offset], offset))
        is_stale = sum(map(len, by_answer.values())) < said.meant
        for answer, items in by_answer.items():
            stale = await self._carry_out(group_id, said.place, answer, items)
            is_stale = is_stale or bool(stale)
            if answer != Acknowledgement.RENEW:
                for _, offset in items:
                    held.pop(offset, None)
        if is_stale:
            raise LeaseExpired(f"member {member_id!r} does not hold all of these records any more")

    async def _carry_out(
        self, group_id: str, place: TopicPartition, answer: int, items: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        queue = self._queue(place)
        parts = [Part(delivery, [(offset, offset + 1)]) for delivery, offset in items]
        if answer == Acknowledgement.ACCEPT:
            return await queue.ack(group_id, parts)
        if answer == Acknowledgement.RENEW:
            lease_ms = queue.settings_of(group_id).lease_ms
            return await queue.extend(group_id, parts, lease_ms=lease_ms)
        reason = "released" if answer == Acknowledgement.RELEASE else "rejected by a share consumer"
        returns = [Return(delivery, offset, 0, reason) for delivery, offset in items]
        if answer == Acknowledgement.RELEASE:
            return await queue.nack(group_id, returns)
        return await queue.reject(group_id, returns)

    async def acquire(
        self,
        group_id: str,
        member_id: str,
        *,
        records_max: int,
        wait_ms: int,
        bytes_max: int = _BYTES_MAX,
    ) -> list[SharePartition]:
        """Lease records of the session's partitions to a member, waiting for the first.

        The first record goes out however large it is.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise ShareSessionNotFound(f"the session of member {member_id!r} has ended")
        asked = _Asked(session, group_id, member_id, records_max, bytes_max)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        while True:
            found = await self._acquire_now(asked)
            if any(each.acquired or each.error for each in found) or loop.time() >= until_s:
                session.hand_out(found)
                return found
            here = self._cluster.member.node
            wanted: dict[str, dict[int, list[int]]] = {}
            for place in session.places:
                by_node = wanted.setdefault(place.topic, {here: []})
                by_node[here].append(place.partition)
            await self._queues.arrivals.wait(wanted, group_id, member_id, until_s=until_s)

    async def _acquire_now(self, asked: _Asked) -> list[SharePartition]:
        places = list(asked.session.places.items())
        first = next(self._turn) % len(places) if places else 0
        found = []
        for place, topic_id in (*places[first:], *places[:first]):
            partition = SharePartition(place, topic_id)
            found.append(partition)
            if asked.records_max <= 0 or asked.bytes_max <= 0:
                continue
            try:
                await self._acquire_from(asked, partition)
            except PenstockError as error:
                partition.error = error
            asked = asked.without(partition.acquired)
        return found

    async def _acquire_from(self, asked: _Asked, partition: SharePartition) -> None:
        group_id, member_id = asked.group_id, asked.member_id
        topic = self._cluster.metadata.topics.get(partition.place.topic)
        if topic is None or topic.public_id != partition.topic_id:
            raise TopicIdMismatch(f"there is no topic with id {partition.topic_id}")
        queue = self._queue(partition.place)
        if group_id not in queue.groups:
            await self._make_sure_of(partition.place.topic, group_id)
            await queue.create_group(group_id, queue.start_offset)
        await queue.wait_ready(group_id, member_id)
        delivery = queue.receive_nowait(
            group_id,
            count_max=asked.records_max,
            bytes_max=asked.bytes_max,
            lease_ms=None,
            consumer=member_id,
        )
        if delivery is None:
            return
        unsent = asked.session.unsent.setdefault(partition.place, {})
        for record, attempt in zip(delivery.records, delivery.attempts, strict=True):
            unsent[record.offset] = delivery.number
            partition.acquired.append(Acquired(record, attempt))

    def _queue(self, place: TopicPartition) -> PartitionQueue:
        return self._cluster.partition(place).queue


def _answers_of(said: Acknowledged, held: Mapping[int, int]) -> Iterable[tuple[int, int]]:
    """Return what is said about single records; of a range that is longer than what is held, those
    that are held."""
    if len(said.answers) > 1:
        return enumerate(said.answers, said.start)
    offsets: Iterable[int] = range(said.start, said.end)
    if said.end - said.start > len(held):
        offsets = sorted(offset for offset in held if said.start <= offset < said.end)
    return [(offset, said.answers[0]) for offset in offsets]

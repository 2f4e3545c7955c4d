"""What the leader of a partition does for queue groups.

The books of a group (`Ledger`) change by committed entries alone. This driver, on the leader, asks
the dispatcher what can go out, reads it, hands it out and proposes the entry that says so; it turns
acks and failures into entries; and one timer ends leases and wakes what has rested.

Crash cases, by what has happened before the crash or the loss of leadership:

- Messages handed out, their `Leased` not committed: the next leader does not know of the lease. The
  messages come back early, their receipts are refused, and this delivery is not counted. An ack
  never precedes its lease in the log, so it cannot be kept while the lease is lost. A leader that
  hands over in good order brings its leases to the next one first.
- An ack proposed: it commits or not; the one who asked gets an error and cannot know which. When it
  asks again, `ack` with `is_repeated` takes a message that is settled for acked, unless the ack of
  another delivery is known to have settled it.
- A lease whose proposal fails while this node still leads may yet be committed (a disk that ran
  full). The dispatcher is dropped, and a new one is built only when nothing can come any more: no
  lease is proposed and not decided, and the log takes proposals again.
- A group that is reset or deleted: nothing is handed out between the proposal and its commit, so no
  lease of before stands in the log after it.
- Retention has removed messages above a group's floor: the start of the log is moved by an entry,
  which settles them for every group on every replica alike.
- The disk is nearly full: publishes are refused where they come in, entries of groups are not.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from penstock.cluster.deliveries import Delivery, DeliveryHost, Return, Waiter
from penstock.cluster.portions import Portion, Portions
from penstock.cluster.recent_records import DELIVERY_BYTES_MAX, RecentRecords
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.topic_machine import TopicMachine, encode_delivery, encode_start_moved
from penstock.cluster.workplace import Workplace
from penstock.delivery import (
    Acked,
    Change,
    DeadLettered,
    DeliveryEvent,
    Dispatcher,
    Expired,
    Extended,
    Failure,
    GroupCreated,
    GroupDeleted,
    GroupReset,
    GroupSettings,
    Leased,
    Ledger,
    OrderMode,
    Part,
    Rejected,
    Returned,
    count_of,
    offsets_of,
    to_runs,
)
from penstock.errors import GroupNotFound, PenstockError
from penstock.ids import Offset, TopicPartition
from penstock.record import Record

# A delivery's number is the leader's term and, in as many bits, its count.
_COUNT_BITS = 40
# The count begins with the number of the partition's log, so that receipts of a topic that had the
# name before are not taken for receipts of this one.
_LOG_BITS = 12
# A receive that meets nothing but messages that are too old or gone stops after so many.
_PASSED_MAX = 20_000
_EXPIRIES_MAX = 5_000
# One who was woken has this long to take what is there before the next is woken.
_WAKE_NEXT_S = 0.02
# Whoever looks at the books waits this long for leases that are not committed.
_LEASES_WAIT_S = 1.0
# How soon a dispatcher is tried again that could not be built.
_LOOK_AGAIN_MS = 500
# The wall clock, which deadlines go by, may be set while the timer waits.
_SLEEP_S_MAX = 1.0


@dataclass(slots=True)
class _Desk:
    """What the leader keeps for one group."""

    group: str
    dispatcher: Dispatcher | None = None
    order: OrderMode = OrderMode.PARALLEL
    # Leases that are proposed and not decided, and the last of them.
    undecided: int = 0
    newest_lease: "asyncio.Future[Change] | None" = None
    # Resets and deletions that are proposed and not decided.
    barriers: int = 0
    waiters: deque[Waiter] = field(default_factory=deque)


class _Desks(dict[str, _Desk]):
    """Desks by group; one that is asked for is there."""

    def __missing__(self, group: str) -> _Desk:
        desk = self[group] = _Desk(group)
        return desk


class PartitionQueue:
    """The queue groups of one partition, as far as its leader drives them."""

    def __init__(
        self,
        place: TopicPartition,
        log: ReplicatedLog,
        machine: TopicMachine,
        workplace: Workplace,
        *,
        host: DeliveryHost,
    ) -> None:
        self.place = place
        self.log = log
        self.records = RecentRecords(log, host.budget)
        self._portions = Portions(self.records)
        self._machine = machine
        self._workplace = workplace
        self._now_ms = workplace.clock.now_ms
        self._host = host
        self._desks = _Desks()
        self._term = 0
        self._first_count = log.identity.group % (1 << _LOG_BITS) << (_COUNT_BITS - _LOG_BITS)
        self._count = self._first_count
        self._is_leading = False
        self._waiting = 0
        self._seen_end = Offset(-1)
        self._is_trimming = False
        self._is_flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        machine.on_delivery = self._applied
        machine.on_trimmed = self._trimmed
        log.watch(self._moved)

    def rename(self, place: TopicPartition) -> None:
        """Go by the name that the topic has now."""
        self.place = place

    # Groups.

    @property
    def groups(self) -> Mapping[str, Ledger]:
        """The books of all groups, by name."""
        return self._machine.delivery.ledgers

    def ledger(self, group: str) -> Ledger:
        """Return the books of a group or raise `GroupNotFound`."""
        ledger = self._machine.delivery.ledgers.get(group)
        if ledger is None:
            raise GroupNotFound(f"there is no queue group {group!r} in {self.place}")
        return ledger

    def settings_of(self, group: str) -> GroupSettings:
        """Return the settings of a group of this partition."""
        return self._host.settings_of(self.place.topic, group)

    def dispatcher(self, group: str) -> Dispatcher | None:
        """Return what the leader knows about what goes out next; None while that is unknown."""
        self.log.check_serving()
        return self._dispatcher(self._desks[group])

    async def create_group(self, group: str, floor: int) -> None:
        """Let a group begin at `floor`; one that exists is left as it is."""
        if group not in self._machine.delivery.ledgers:
            await self._propose(GroupCreated(group, floor, self._now_ms()))

    async def reset_group(self, group: str, floor: int) -> None:
        """Let a group begin anew at `floor`; receipts that are out are refused from then on."""
        self.ledger(group)
        await self._propose_alone(GroupReset(group, floor, self._now_ms()))

    async def delete_group(self, group: str) -> None:
        """Forget a group."""
        if group in self._machine.delivery.ledgers:
            await self._propose_alone(GroupDeleted(group, self._now_ms()))

    async def _propose_alone(self, event: GroupReset | GroupDeleted) -> None:
        desk = self._desks[event.group]
        desk.barriers += 1
        try:
            await self._propose(event)
        finally:
            desk.barriers -= 1
            self._wake(desk)

    # Handing out.

    async def wait_ready(self, group: str, consumer: str) -> None:
        """Before messages go out, make sure that no other leader has settled them meanwhile.

        A leader that was replaced without knowing it would hand out what was acked elsewhere. One
        that is alone cannot be.
        """
        if not self.log.is_alone and self.has_ready(group, consumer):
            await self.log.wait_current()

    def receive_nowait(
        self,
        group: str,
        *,
        count_max: int,
        lease_ms: int | None,
        consumer: str,
        consumer_in_flight_max: int | None = None,
        bytes_max: int = DELIVERY_BYTES_MAX,
    ) -> Delivery | None:
        """Hand out what is there now; None when nothing is, or the limits are reached.

        A consumer may ask for a lower limit of messages in flight than the group gives it, and
        for fewer bytes than go out together.
        """
        self.log.check_serving()
        if self.ledger(group).floor < (start_offset := self.start_offset):
            self._trim(start_offset)
            return None
        desk = self._desks[group]
        settings = self.settings_of(group)
        if consumer_in_flight_max is not None:
            lowered = min(settings.consumer_in_flight_max, consumer_in_flight_max)
            settings = msgspec.structs.replace(settings, consumer_in_flight_max=lowered)
        passed = 0
        while passed < _PASSED_MAX:
            dispatcher = self._dispatcher_in(desk, settings.order)
            if dispatcher is None:
                return None
            room = dispatcher.room(consumer, settings)
            if room == 0:
                return None
            portion = self._take(desk, dispatcher, min(count_max, room), settings, bytes_max)
            if portion is None:
                return None
            lease = settings.lease_ms if lease_ms is None else lease_ms
            delivery = self._lease(desk, dispatcher, portion, lease_ms=lease, consumer=consumer)
            if delivery is not None or desk.order is OrderMode.STRICT:
                # In strict order the next one goes out when this one is settled.
                return delivery
            passed += count_of(portion.expired)
        return None

    def _take(
        self,
        desk: _Desk,
        dispatcher: Dispatcher,
        count_max: int,
        settings: GroupSettings,
        bytes_max: int,
    ) -> Portion | None:
        end, now_ms = self.log.high_watermark, self._now_ms()
        try:
            return self._portions.take(
                dispatcher, count_max, settings, end=end, now_ms=now_ms, bytes_max=bytes_max
            )
        except PenstockError:
            desk.dispatcher = None
            raise

    def _lease(
        self, desk: _Desk, dispatcher: Dispatcher, taken: Portion, *, lease_ms: int, consumer: str
    ) -> Delivery | None:
        """Propose the lease of what was taken; None when all of it is too old or gone."""
        now_ms, until_ms = taken.at_ms, taken.at_ms + lease_ms
        number = self._next_number()
        event = Leased(
            desk.group,
            number,
            taken.runs,
            until_ms,
            now_ms,
            consumer,
            taken.keys,
            taken.expired,
            self._limits_of(desk.group, taken),
        )
        self._propose_lease(desk, dispatcher, event)
        self._arm(until_ms)
        if desk.waiters:
            self._wake(desk)
        if not taken.records:
            return None
        self._host.counts.received += len(taken.records)
        return Delivery(
            number, now_ms, until_ms, taken.records, taken.attempts, is_plain=taken.is_plain
        )

    def _limits_of(self, group: str, taken: Portion) -> list[int]:
        """Return how often each message may go out, if each says so, in the order of its runs."""
        limit_of = self._host.own_limits(self.place.topic, group)
        if limit_of is None:
            return []
        return [limit_of(record) for record in sorted(taken.records, key=_offset_of)]

    def _next_number(self) -> int:
        self._count += 1
        return self._term << _COUNT_BITS | self._count

    def _propose_lease(
        self, desk: _Desk, dispatcher: Dispatcher, event: Leased
    ) -> "asyncio.Future[Change]":
        """Propose what becomes of messages that the dispatcher has given."""
        try:
            proposed = self.log.propose_state_soon(encode_delivery(event))
        except PenstockError:
            dispatcher.put_back([*offsets_of(event.runs), *offsets_of(event.expired)])
            raise
        dispatcher.reserve(event)
        desk.undecided += 1
        desk.newest_lease = proposed
        proposed.add_done_callback(partial(self._lease_decided, desk))
        return proposed

    def _lease_decided(self, desk: _Desk, proposed: "asyncio.Future[Change]") -> None:
        desk.undecided -= 1
        if proposed.cancelled() or proposed.exception() is not None:
            desk.dispatcher = None
        if desk.dispatcher is None and not desk.undecided:
            self._wake(desk)

    async def wait_leases(self, group: str) -> None:
        """Let the books know of all that has gone out; they may not, when that takes long."""
        desk = self._desks.get(group)
        if desk is not None and desk.undecided and desk.newest_lease is not None:
            self.log.flush_waiting()
            await asyncio.wait([desk.newest_lease], timeout=_LEASES_WAIT_S)

    # What consumers answer.

    async def ack(
        self, group: str, parts: list[Part], *, is_repeated: bool = False
    ) -> list[tuple[int, int]]:
        """Settle messages; return delivery and offset of those whose lease does not hold.

        `is_repeated` says that an earlier attempt may have been committed: what is settled then
        counts as acked, but for what others have acked a moment ago. To refuse one's own ack would
        be worse than to accept it beside that of another: the work for it may be undone. Receipts
        of a topic that had the name before say nothing about the messages of this one.
        """
        change = await self._propose(Acked(group, parts, self._now_ms()))
        if is_repeated and change.stale:
            ledger = self.ledger(group)
            return [
                (delivery, offset)
                for delivery, offset in change.stale
                if not (self._is_own(delivery) and ledger.is_settled(offset))
                or ledger.was_acked(offset)
            ]
        return change.stale

    async def ack_late(
        self, group: str, parts: list[Part], *, is_repeated: bool = False
    ) -> list[tuple[int, int]]:
        """The same, also for messages whose lease has ended and that nobody has got since.

        It may have ended with its leader, before it was committed.
        """
        stale = await self.ack(group, parts, is_repeated=is_repeated)
        desk = self._desks[group]
        dispatcher = self._dispatcher(desk) if stale else None
        if dispatcher is None:
            return stale
        now_ms = self._now_ms()
        # What was claimed cannot go out between here and the commit.
        claimed = {
            offset
            for delivery, offset in stale
            if self._is_own(delivery)
            and offset < self.log.high_watermark
            and dispatcher.claim(offset, now_ms)
        }
        if claimed:
            runs = to_runs(sorted(claimed))
            event = Leased(group, self._next_number(), [], now_ms, now_ms, expired=runs)
            committed = self._propose_lease(desk, dispatcher, event)
            self._flush_soon()
            # Whoever gives up waiting must not make it look undone.
            await asyncio.shield(committed)
        return [each for each in stale if each[1] not in claimed]

    def _is_own(self, delivery: int) -> bool:
        """Whether the number of a delivery was given by a leader of this partition's log."""
        log_bits = (1 << _LOG_BITS) - 1 << (_COUNT_BITS - _LOG_BITS)
        return delivery & log_bits == self._first_count

    async def nack(self, group: str, items: Sequence[Return]) -> list[tuple[int, int]]:
        """Take back messages that could not be handled; each rests before it goes out again."""
        now_ms = self._now_ms()
        ledger = self.ledger(group)
        settings = self.settings_of(group)
        failures = []
        for delivery, offset, delay_ms, reason, is_counted in items:
            rest_ms = delay_ms or 0
            if delay_ms is None and is_counted:
                jitter = self._workplace.randrange(1_000) / 1_000
                rest_ms = settings.backoff_ms(ledger.attempts(offset) + 1, jitter)
            failures.append(Failure(delivery, offset, now_ms + rest_ms, reason, is_counted))
        change = await self._propose(Returned(group, failures, settings.attempts_max, now_ms))
        return change.stale

    async def extend(
        self, group: str, parts: list[Part], *, lease_ms: int
    ) -> list[tuple[int, int]]:
        """Let leases end `lease_ms` from now."""
        now_ms = self._now_ms()
        change = await self._propose(Extended(group, parts, now_ms + lease_ms, now_ms))
        return change.stale

    async def reject(self, group: str, items: Sequence[Return]) -> list[tuple[int, int]]:
        """Send messages to the dead letters."""
        now_ms = self._now_ms()
        failures = [Failure(item.delivery, item.offset, now_ms, item.reason) for item in items]
        change = await self._propose(Rejected(group, failures, now_ms))
        return change.stale

    async def dead_lettered(self, group: str, offsets: Sequence[int]) -> None:
        """Settle messages whose copies are committed."""
        await self._propose(DeadLettered(group, to_runs(sorted(offsets)), self._now_ms()))

    async def settle(self, group: str, offsets: Sequence[int]) -> None:
        """Settle messages that nobody received, as if they were too old."""
        now_ms = self._now_ms()
        runs = to_runs(sorted(offsets))
        await self._propose(Leased(group, self._next_number(), [], now_ms, now_ms, expired=runs))

    def _propose(self, event: DeliveryEvent) -> "asyncio.Future[Change]":
        """Commit an event, together with those of everybody who asks in this turn of the loop.

        And of those whose requests have arrived by the end of it: they are read in the next turn,
        behind what was called for in this one. A loop that flushes by itself would serve consumers
        one by one otherwise, each with a sync of its own.
        """
        committed: asyncio.Future[Change] = self.log.propose_state_soon(encode_delivery(event))
        self._flush_soon()
        return committed

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._workplace.loop.call_soon(self._flush_in_next_turn)

    def _flush_in_next_turn(self) -> None:
        self._workplace.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self.log.flush_waiting()

    # What was committed.

    def _applied(self, event: DeliveryEvent, change: Change) -> None:
        """Tell the dispatcher. Followers have none."""
        if not self._is_leading:
            return
        desk = self._desks[event.group]
        dispatcher = desk.dispatcher
        # Nearly all events are one of these two, and nothing comes back by them.
        if isinstance(event, Leased):
            if dispatcher is not None:
                dispatcher.leased(event)
        elif isinstance(event, Acked):
            if dispatcher is not None:
                dispatcher.changed(change)
            self._host.counts.acked += count_of(change.settled)
        else:
            self._count_change(event, change)
            self._note_returns(desk, event, change)
        if desk.waiters and (change.ended or change.settled):
            self._wake(desk)

    def _note_returns(self, desk: _Desk, event: DeliveryEvent, change: Change) -> None:
        """Let the dispatcher and the timer know what comes back, and when."""
        if isinstance(event, (GroupCreated, GroupReset, GroupDeleted)):
            desk.dispatcher = None
        dispatcher = desk.dispatcher
        if dispatcher is not None:
            _tell(dispatcher, event, change)
            for _, ready_at_ms in change.waiting:
                self._arm(ready_at_ms)
            if isinstance(event, Extended):
                self._arm(event.until_ms)
        if change.dying:
            self._host.on_dying(self.place, event.group, False)

    def _count_change(self, event: DeliveryEvent, change: Change) -> None:
        counts = self._host.counts
        match event:
            case Returned():
                counts.nacked += len(change.waiting) + len(change.dying)
            case Expired():
                counts.expired += len(change.waiting) + len(change.dying)
            case Rejected():
                counts.rejected += len(change.dying)
            case DeadLettered():
                counts.dead_lettered += count_of(change.settled)

    def _trimmed(self) -> None:
        """Leases may have ended without a word to the dispatchers."""
        for desk in self._desks.values():
            desk.dispatcher = None
        self._schedule()

    # Leading.

    def _moved(self) -> None:
        """Entries were applied, or leadership has changed."""
        is_serving = self.log.is_serving
        if is_serving != self._is_leading or (is_serving and self.log.term != self._term):
            self._leadership_changed(is_leading=is_serving)
        end = self.log.high_watermark
        if end != self._seen_end:
            self._seen_end = end
            if self._waiting:
                for desk in self._desks.values():
                    self._wake(desk)

    def _leadership_changed(self, *, is_leading: bool) -> None:
        self._is_leading = is_leading
        self._term, self._count = self.log.term, self._first_count
        waiters: list[Waiter] = []
        for desk in self._desks.values():
            waiters += desk.waiters
            desk.waiters.clear()
        self._desks.clear()
        self._waiting = 0
        self._is_trimming = False
        self.records.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_leading:
            self._workplace.loop.call_soon(self._begin)
        for waiter in waiters:
            waiter.wake()

    def _begin(self) -> None:
        """Take up what the last leader left: leases that will end, and messages that are dying."""
        if not self._is_leading:
            return
        for group, ledger in self._machine.delivery.ledgers.items():
            if ledger.leases or ledger.waiting:
                self._desks.setdefault(group, _Desk(group))
            if ledger.dying:
                self._host.on_dying(self.place, group, True)
        self._schedule()

    def _dispatcher(self, desk: _Desk) -> Dispatcher | None:
        """Return the group's dispatcher, building it when that is safe; else None."""
        return self._dispatcher_in(desk, self.settings_of(desk.group).order)

    def _dispatcher_in(self, desk: _Desk, order: OrderMode) -> Dispatcher | None:
        if desk.barriers:
            return None
        if desk.dispatcher is not None and desk.order is order:
            return desk.dispatcher
        desk.dispatcher = None
        ledger = self._machine.delivery.ledgers.get(desk.group)
        if desk.undecided or ledger is None:
            return None
        self.log.check_writable()
        desk.order = order
        desk.dispatcher = Dispatcher(ledger, self._machine.priorities, order)
        if (deadline_ms := desk.dispatcher.next_deadline_ms) is not None:
            self._arm(deadline_ms)
        return desk.dispatcher

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be read."""
        return Offset(max(self.log.log.first_offset, self._machine.start_offset))

    def _trim(self, start_offset: Offset) -> None:
        """Settle what retention has removed, for every group and on every replica."""
        if not self._is_trimming:
            proposed = self.log.propose_state(encode_start_moved(start_offset))
            self._is_trimming = True
            proposed.add_done_callback(self._trim_decided)

    def _trim_decided(self, proposed: "asyncio.Future[Offset]") -> None:
        self._is_trimming = False
        if not proposed.cancelled() and proposed.exception() is None:
            for desk in self._desks.values():
                self._wake(desk)

    # Waiting.

    def watch(self, group: str, waiter: Waiter) -> None:
        """Call `waiter.wake` once, when something may be there for it or leadership ends."""
        self._desks[group].waiters.append(waiter)
        self._waiting += 1

    def unwatch(self, group: str, waiter: Waiter) -> None:
        """Undo `watch`; a waiter that was woken is not there any more."""
        desk = self._desks.get(group)
        if desk is not None and waiter in desk.waiters:
            desk.waiters.remove(waiter)
            self._waiting -= 1

    def has_ready(self, group: str, consumer: str) -> bool:
        """True when something may be there that this consumer has room for."""
        desk = self._desks[group]
        return self._has_ready(desk) and self._has_room(desk, consumer)

    def _has_ready(self, desk: _Desk) -> bool:
        try:
            dispatcher = self._dispatcher(desk)
        except PenstockError:
            return False
        if dispatcher is None:
            return False
        dispatcher.wake(self._now_ms())
        return dispatcher.has_ready(self.log.high_watermark)

    def _has_room(self, desk: _Desk, consumer: str) -> bool:
        assert desk.dispatcher is not None, "something is ready"
        return desk.dispatcher.room(consumer, self.settings_of(desk.group)) > 0

    def _wake(self, desk: _Desk) -> None:
        """Wake the first who has room; who takes messages wakes the next in turn."""
        if not desk.waiters or not self._is_leading or not self._has_ready(desk):
            return
        for waiter in desk.waiters:
            if self._has_room(desk, waiter.consumer):
                desk.waiters.remove(waiter)
                self._waiting -= 1
                waiter.wake()
                # It may have left, or take its time.
                self._workplace.loop.call_later(_WAKE_NEXT_S, self._wake, desk)
                return

    # Time.

    def _arm(self, at_ms: int) -> None:
        """Let the timer go off at `at_ms` or before."""
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = at_ms
        wait_s = max(0, at_ms - self._now_ms()) / 1000
        self._timer = self._workplace.loop.call_later(min(wait_s, _SLEEP_S_MAX), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if not self._is_leading:
            return
        now_ms = self._now_ms()
        for desk in list(self._desks.values()):
            try:
                dispatcher = self._dispatcher(desk)
                if dispatcher is not None:
                    self._expire(desk, dispatcher.overdue(now_ms), now_ms)
                    dispatcher.wake(now_ms)
            except PenstockError:
                # The disk is full, or leadership ends; what is overdue stays so.
                desk.dispatcher = None
            self._wake(desk)
        self._schedule()

    def _expire(self, desk: _Desk, overdue: list[int], now_ms: int) -> None:
        attempts_max = self.settings_of(desk.group).attempts_max if overdue else 0
        for start in range(0, len(overdue), _EXPIRIES_MAX):
            deliveries = overdue[start : start + _EXPIRIES_MAX]
            event = Expired(desk.group, deliveries, attempts_max, now_ms)
            proposed = self.log.propose_state(encode_delivery(event))
            desk.undecided += 1
            proposed.add_done_callback(partial(self._lease_decided, desk))

    def _schedule(self) -> None:
        """Arm the timer for the earliest deadline; look again soon where that is unknown."""
        for desk in self._desks.values():
            try:
                dispatcher = self._dispatcher(desk)
            except PenstockError:
                dispatcher = None
            if dispatcher is None and desk.group in self._machine.delivery.ledgers:
                self._arm(self._now_ms() + _LOOK_AGAIN_MS)
            elif dispatcher and (deadline_ms := dispatcher.next_deadline_ms) is not None:
                self._arm(deadline_ms)


def _offset_of(record: Record) -> int:
    return record.offset


def _tell(dispatcher: Dispatcher, event: DeliveryEvent, change: Change) -> None:
    match event:
        case Extended(_, parts):
            dispatcher.extended({part.delivery for part in parts})
        case Expired(_, deliveries):
            dispatcher.changed(change)
            dispatcher.expired(deliveries)
        case _:
            dispatcher.changed(change)

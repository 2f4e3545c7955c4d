"""What committed entries mean for messages, worked out a second time and more simply.

The referee tells every entry to these books when it commits. They know nothing of runs, bitmaps,
lanes or timers: a message is one entry of a dictionary. What an entry does that these books do not
allow is a violation, whoever proposed it: a lease on what is settled, out, dying or resting, an ack
that nobody sent, a release before its time or of what was cancelled, a second copy of a dead
letter, a settlement without one.
"""

from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from penstock.broker.burial import ATTEMPTS, GROUP, SOURCE_OFFSET
from penstock.cluster.deliveries import Delivery
from penstock.cluster.topic_machine import Event, StartMoved, decode_events
from penstock.cluster.write_events import WriteEvent
from penstock.delivery import (
    Acked,
    DeadLettered,
    DeliveryEvent,
    Expired,
    Extended,
    Failure,
    GroupCreated,
    GroupSettings,
    KeysMarked,
    Leased,
    OrderMode,
    Rejected,
    Restaged,
    Returned,
    StageCancelled,
    Staged,
    StageMoved,
    key_digest,
    offsets_of,
    parse_stage_id,
    stage_number,
    unpack_numbers,
    unpack_records,
)
from penstock.raft import Entry
from penstock.raft import EntryKind as RaftKind
from penstock.record import (
    ID,
    Record,
    attributes_of,
    decode_records,
    read_header,
)
from tests.simulation.referee import require

Answer = tuple[str, int, int]
"""A group, a delivery and an offset: what a receipt says."""


@dataclass(slots=True)
class Message:
    """A record, and what its headers say."""

    record: Record
    key: int | None
    lane: int


@dataclass(slots=True)
class Out:
    """The lease that a message is under."""

    delivery: int
    until_ms: int


class Moment(NamedTuple):
    """When an entry became final: under the leader of which term, and which entry."""

    term: int
    entry: int


@dataclass(slots=True)
class GroupBooks:
    """What one group has done with each message."""

    settings: GroupSettings
    floor: int
    settled: dict[int, Moment] = field(default_factory=dict)
    """By offset: when that became final."""
    out: dict[int, Out] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    dying: set[int] = field(default_factory=set)

    def is_settled(self, offset: int) -> bool:
        return offset < self.floor or offset in self.settled

    def settle(self, offset: int, at: Moment) -> None:
        self.settled.setdefault(offset, at)
        self.out.pop(offset, None)
        self.waiting.pop(offset, None)
        self.dying.discard(offset)

    def fail(self, offset: int, ready_at_ms: int, attempts_max: int) -> None:
        self.out.pop(offset)
        if 0 < attempts_max <= self.attempts[offset]:
            self.dying.add(offset)
        else:
            self.waiting[offset] = ready_at_ms


class Books:
    """The messages of one partition."""

    def __init__(self, settings: dict[str, GroupSettings]) -> None:
        self.settings = settings
        self.groups: dict[str, GroupBooks] = {}
        self.messages: dict[int, Message] = {}
        self.end = 0
        self.start = 0
        self.removed_before = 0
        """Up to where retention has taken records from some replica."""
        self.latest_ms = 0
        """The latest time that a clock had shown when it was set back."""
        self.may_lose_leases = False
        """Whether a proposal may fail although its leader goes on."""
        self.sent: dict[str, set[Answer]] = {"ack": set(), "nack": set(), "reject": set()}
        """What consumers have answered, whether or not it arrived."""
        self.staged: dict[int, tuple[int, Record]] = {}
        """Messages that wait: when they are due, and what they are."""
        self.released: dict[int, int] = {}
        self.cancelled: dict[int, bytes | None] = {}
        """What was taken out of the stage, by number: the values."""
        self._keys: set[bytes] = set()
        self._copies: set[tuple[str, int]] = set()
        self._handed: dict[Answer, int] = {}
        self._last_handed: dict[tuple[str, int], int] = {}
        self._leased: set[tuple[str, int]] = set()
        self.handed = 0
        self.buried = 0

    # What commits.

    def commit(self, entry: Entry, term: int) -> None:
        """An entry is final, under a leader of this term."""
        if entry.kind is RaftKind.RECORDS:
            self._commit_records(bytes(entry.payload))
        elif entry.kind is RaftKind.STATE:
            self._commit_state(bytes(entry.payload), Moment(term, entry.index))

    def _commit_records(self, batch: bytes) -> None:
        header = read_header(batch)
        for record in decode_records(batch):
            attributes = attributes_of(record.headers)
            key = None if record.key is None else crc32(record.key)
            self.messages[record.offset] = Message(record, key, attributes.priority)
            if header.is_release:
                self._release(record)
            elif attributes.idempotency_key is not None:
                self._see_key(key_digest(attributes.idempotency_key))
                self._see_copy(record)
        self.end = header.next_offset

    def _see_key(self, digest: bytes) -> None:
        require(digest not in self._keys, "an idempotency key is stored twice", digest.hex())
        self._keys.add(digest)

    def _release(self, record: Record) -> None:
        name = dict(record.headers)[ID]
        assert name is not None
        number = parse_stage_id(name.decode())[1]
        require(number not in self.cancelled, "a cancelled message is released", name)
        require(number not in self.released, "a message is released twice", name)
        require(number in self.staged, "a message is released that nobody scheduled", name)
        due_ms, first = self.staged.pop(number)
        is_due = max(record.timestamp, self.latest_ms) >= due_ms
        require(is_due, "a message is released early", name, due_ms, record.timestamp)
        same = (record.key, record.value) == (first.key, first.value)
        require(same, "a message is released with another content", name)
        self.released[number] = record.offset

    def _see_copy(self, record: Record) -> None:
        """A dead letter is a copy of a message that is dying, and has no second."""
        headers = dict(record.headers)
        if GROUP not in headers:
            return
        group, source = _text(headers[GROUP]), int(_text(headers[SOURCE_OFFSET]))
        require((group, source) not in self._copies, "a dead letter is copied twice", source)
        self._copies.add((group, source))
        books = self.groups[group]
        is_dying = source in books.dying or source < self.start
        require(is_dying, "a message is buried that is not dying", group, source)
        require(
            int(_text(headers[ATTEMPTS])) == books.attempts[source],
            "a dead letter tells a wrong number of attempts",
            source,
            books.attempts[source],
        )
        copied = self.messages[source].record
        same = (record.key, record.value) == (copied.key, copied.value)
        require(same, "a dead letter is not a copy", source)

    def _commit_state(self, payload: bytes, at: Moment) -> None:
        for event in decode_events(payload):
            self._commit_event(event, at)

    def _commit_event(self, event: Event, at: Moment) -> None:
        if isinstance(event, WriteEvent):
            # Staged writes have books of their own, with those who stage.
            return
        match event:
            case StartMoved(offset):
                self._move_start(offset, at)
            case Staged():
                self._stage(event, at.entry)
            case StageCancelled(numbers):
                for number in unpack_numbers(numbers):
                    self._cancel(number)
            case StageMoved(numbers, due_ms):
                for number in unpack_numbers(numbers):
                    if number in self.staged:
                        self.staged[number] = (due_ms, self.staged[number][1])
            case Restaged() | KeysMarked():
                pass
            case _:
                assert isinstance(event, DeliveryEvent), event
                self._commit_delivery(event, at)

    def _cancel(self, number: int) -> None:
        """A message that waited will never come, and its key may be used by another."""
        if found := self.staged.pop(number, None):
            record = found[1]
            self.cancelled[number] = record.value
            key = attributes_of(record.headers).idempotency_key
            if key is not None:
                self._keys.discard(key_digest(key))

    def _stage(self, event: Staged, index: int) -> None:
        dues = unpack_numbers(event.dues)
        records = unpack_records(event.records, range(len(dues)))
        for place, (due_ms, record) in enumerate(zip(dues, records, strict=True)):
            self.staged[stage_number(index, place)] = (due_ms, record)
        for key in event.keys.values():
            self._see_key(key.digest)

    def _move_start(self, offset: int, at: Moment) -> None:
        self.start = max(self.start, offset)
        for group in self.groups.values():
            for gone in range(group.floor, self.start):
                group.settle(gone, at)

    def _commit_delivery(self, event: DeliveryEvent, at: Moment) -> None:
        if isinstance(event, GroupCreated):
            settings = self.settings[event.group]
            self.groups.setdefault(event.group, GroupBooks(settings, event.floor))
            return
        group = self.groups[event.group]
        match event:
            case Leased():
                self._lease(group, event, at)
            case Acked(_, parts):
                for part in parts:
                    for offset in offsets_of(part.runs):
                        if _holds(group, part.delivery, offset):
                            self._check_sent("ack", event.group, part.delivery, offset)
                            group.settle(offset, at)
            case Returned(_, failures, attempts_max):
                for each in failures:
                    if self._takes(group, "nack", event.group, each):
                        # What was not begun costs no attempt, so it cannot have been the last.
                        group.attempts[each.offset] -= not each.is_counted
                        limit = attempts_max if each.is_counted else 0
                        group.fail(each.offset, each.ready_at_ms, limit)
            case Rejected(_, failures):
                for each in failures:
                    if self._takes(group, "reject", event.group, each):
                        del group.out[each.offset]
                        group.dying.add(each.offset)
            case Extended(_, parts, until_ms):
                for part in parts:
                    for offset in offsets_of(part.runs):
                        if _holds(group, part.delivery, offset):
                            group.out[offset].until_ms = until_ms
            case Expired(_, deliveries, attempts_max, at_ms):
                for offset, out in list(group.out.items()):
                    if out.delivery in deliveries and out.until_ms <= at_ms:
                        group.fail(offset, at_ms, attempts_max)
            case DeadLettered(name, runs):
                for offset in offsets_of(runs):
                    if offset in group.dying:
                        is_there = (name, offset) in self._copies or self._is_gone(offset)
                        require(is_there, "a dying message is settled without a copy", offset)
                        group.settle(offset, at)

    def _takes(self, group: GroupBooks, kind: str, name: str, failure: Failure) -> bool:
        if not _holds(group, failure.delivery, failure.offset):
            return False
        self._check_sent(kind, name, failure.delivery, failure.offset)
        return True

    def _check_sent(self, kind: str, group: str, delivery: int, offset: int) -> None:
        is_sent = (group, delivery, offset) in self.sent[kind]
        require(is_sent, f"a message meets an {kind} that nobody sent", group, delivery, offset)

    def _lease(self, group: GroupBooks, event: Leased, at: Moment) -> None:
        self._leased.add((event.group, event.delivery))
        for offset in offsets_of(event.expired):
            require(self._is_gone(offset), "a message is given up that is there", offset)
            group.settle(offset, at)
        for offset in offsets_of(event.runs):
            if offset < self.start:
                # Its deletion came first: whoever holds the receipt is refused.
                continue
            require(offset in self.messages, "a message is leased that is not there", offset)
            require(not group.is_settled(offset), "a settled message is leased", offset)
            require(offset not in group.out, "a message is leased twice", offset)
            require(offset not in group.dying, "a dying message is leased", offset)
            ready_at_ms = group.waiting.pop(offset, 0)
            is_ready = ready_at_ms <= max(event.at_ms, self.latest_ms)
            require(is_ready, "a message is leased while it rests", offset, event)
            self._check_order(group, offset, event.delivery)
            group.out[offset] = Out(event.delivery, event.until_ms)
            group.attempts[offset] = group.attempts.get(offset, 0) + 1
            told = self._handed.get((event.group, event.delivery, offset))
            require(
                told == group.attempts[offset],
                "a consumer was told a wrong number of attempts",
                offset,
                told,
                group.attempts[offset],
            )

    def _check_order(self, group: GroupBooks, offset: int, delivery: int) -> None:
        order = group.settings.order
        if order is OrderMode.PARALLEL:
            return
        begun = {*group.out, *group.waiting, *group.dying}
        if order is OrderMode.STRICT:
            require(not begun - {offset}, "a message overtakes in strict order", offset, begun)
            earlier = self._open_before(group, offset)
            require(not earlier, "a message is passed over in strict order", offset, earlier)
            return
        message = self.messages[offset]
        if message.key is None:
            return
        together = set()
        if order is OrderMode.KEY_BATCH:
            # They may go out together, and one that came back goes before those that follow it.
            together = {each for each in begun if _holds(group, delivery, each)}
            begun = {each for each in begun if each in group.out or each < offset}
        same = [each for each in begun - together if self.messages[each].key == message.key]
        require(not same, "a message overtakes one of its key", offset, same)
        earlier = [
            each
            for each in self._open_before(group, offset)
            if (self.messages[each].key, self.messages[each].lane) == (message.key, message.lane)
            and each not in together
        ]
        require(not earlier, "a message of the same key is passed over", offset, earlier)

    def _open_before(self, group: GroupBooks, offset: int) -> list[int]:
        """Messages that the group has not begun with, before one."""
        return [
            each
            for each in range(max(group.floor, self.start), offset)
            if each in self.messages and not group.is_settled(each)
        ]

    def _is_gone(self, offset: int) -> bool:
        """Whether a leader may have found nothing at an offset."""
        return offset not in self.messages or offset < max(self.start, self.removed_before)

    # What consumers see.

    def hand_out(self, group: str, handed: Delivery, now: Moment) -> None:
        """A leader of this term, that has applied so much, gives messages to a consumer.

        What others have settled since, in a later term, it cannot know; nor what is settled in its
        own term and not applied, because its disk is slow: that was not confirmed to anybody.
        """
        books = self.groups[group]
        delivery = handed.number
        for record, attempt in zip(handed.records, handed.attempts, strict=True):
            offset = record.offset
            settled = books.settled.get(offset)
            is_open = offset >= books.floor and (settled is None or settled > now)
            require(is_open, "a settled message is handed out again", group, offset)
            require(record == self.messages[offset].record, "a message is not its record", offset)
            last = self._last_handed.get((group, offset))
            if last is not None and last >> 40 == delivery >> 40 and not self.may_lose_leases:
                # One leader forgets no lease: the last one has ended in the log.
                is_known = (group, last) in self._leased
                require(is_known, "a leader forgot its own lease", group, offset)
            self._last_handed[group, offset] = delivery
            self._handed[group, delivery, offset] = attempt
            self.handed += 1

    def check_acked(self, group: str, offset: int) -> None:
        """A consumer was told that a message is settled."""
        is_settled = self.groups[group].is_settled(offset)
        require(is_settled, "an ack was confirmed and is not final", group, offset)

    # The end.

    @property
    def settled_count(self) -> int:
        """How many messages have come to their end."""
        return len(self.released) + sum(len(group.settled) for group in self.groups.values())

    def is_done(self) -> bool:
        """Whether every message has come to its end in every group."""
        return not self.staged and all(
            not (group.out or group.waiting or group.dying or self._open_before(group, self.end))
            for group in self.groups.values()
        )

    def check_done(self) -> None:
        """Nothing is left over, and nothing is lost."""
        require(not self.staged, "scheduled messages are never released", self.staged.keys())
        for name, group in self.groups.items():
            left = self._open_before(group, self.end)
            require(not left, "messages are never delivered", name, left[:10], group)
        self.buried = len(self._copies)


def _holds(group: GroupBooks, delivery: int, offset: int) -> bool:
    out = group.out.get(offset)
    return out is not None and out.delivery == delivery


def _text(value: bytes | None) -> str:
    return (value or b"").decode()

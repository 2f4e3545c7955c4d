"""How messages with attributes come into a partition, on its leader.

A message that is to be delivered later goes to the stage, one whose idempotency key was seen is
answered with the result of the first, and the rest is appended; where some records of a batch are
taken out, their offsets stay free, as compaction leaves them.

Crash cases:

- A batch is split into records and a stage entry: the publisher hears when both are committed. When
  the leader is lost in between, either may be there, and the publisher cannot know, as with any
  answer that does not come; keys find again what is there.
- The batch of an idempotent producer is not split: its sequence stands for all of it, and a part
  that went missing would never be asked for again. Messages without a time go through the stage
  with the others, due at once. Its sequence is noted when the stage entry is applied.
- A key is in flight from the proposal to the answer, and committed before the answer: there is no
  moment in which a second publish finds neither. When the first one fails, so does the second. A
  new leader has applied all that may be committed before it serves.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.cluster.partition_fence import PartitionFence
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.topic_machine import TopicMachine, encode_stage_event
from penstock.cluster.workplace import Workplace
from penstock.delivery import (
    STAGED_MAX,
    FirstResult,
    KeysMarked,
    Staged,
    StagedKey,
    key_digest,
    pack_numbers,
    pack_records,
    stage_number,
)
from penstock.errors import InvalidBatch, PenstockError, Unavailable
from penstock.ids import Offset
from penstock.record import (
    HEADER_BYTES,
    Attributes,
    BatchHeader,
    Record,
    RecordBatch,
    attributes_of_all,
    decode_records,
    new_batch_may_have_attributes,
    read_header,
    rewrite_batch,
)

# Keys of one partition within its window; a publish with more waits until some are older.
_KEYS_MAX = 5_000_000
# A key is remembered for the window and at most this part of it longer.
_MARKS_PER_WINDOW = 20
_MARK_INTERVAL_MS_MIN = 1_000

InSequence = Callable[
    [BatchHeader, Callable[[], "asyncio.Future[Offset]"]], "asyncio.Future[Offset]"
]

# In place of an entry's index: the producer has sent the batch before.
_REPEATED = -1


class Placement(msgspec.Struct, frozen=True, array_like=True):
    """Where one message of a batch went: an offset, or a number in the stage."""

    offset: int | None
    stage_number: int | None
    timestamp: int
    due_ms: int | None = None
    is_duplicate: bool = False


class Placed(NamedTuple):
    """A batch that is committed: the offset to answer with, and each of its messages."""

    offset: Offset
    messages: list[Placement]


class _InFlight(NamedTuple):
    """The first message with a key: its batch, and its place there."""

    batch: "asyncio.Future[Placed]"
    place: int


class _Plan(NamedTuple):
    """What becomes of the messages of one batch, by their place in it."""

    records: list[Record]
    digests: dict[int, bytes]
    known: dict[int, FirstResult]
    waits_for: dict[int, _InFlight]
    repeats: dict[int, int]
    staged: dict[int, int]

    @property
    def kept(self) -> list[int]:
        """Messages that are neither duplicates nor staged."""
        taken = (self.known, self.waits_for, self.repeats, self.staged)
        return [place for place in range(len(self.records)) if not any(place in t for t in taken)]


class Intake:
    """Takes batches with attributes; one for each partition."""

    def __init__(
        self,
        log: ReplicatedLog,
        machine: TopicMachine,
        workplace: Workplace,
        in_sequence: InSequence,
        fence: PartitionFence,
    ) -> None:
        self._log = log
        self._machine = machine
        self._arrivals = machine.arrivals
        self._workplace = workplace
        self._in_sequence = in_sequence
        self._fence = fence
        self._in_flight: dict[bytes, _InFlight] = {}
        self._mark_timer: asyncio.TimerHandle | None = None

    def check(self, batch: RecordBatch) -> None:
        """Raise when a batch has attributes that make no sense."""
        if new_batch_may_have_attributes(batch.header, batch.data):
            attributes_of_all(decode_records(batch.data))

    def publish(self, batch: RecordBatch, *, window_ms: int) -> "asyncio.Future[Placed] | None":
        """Take a batch; None when it has nothing that keeps it from being appended as it is."""
        if not new_batch_may_have_attributes(batch.header, batch.data):
            self._machine.expect_plain(batch.header, batch.data)
            return None
        records = list(decode_records(batch.data))
        attributes = attributes_of_all(records)
        now_ms = self._workplace.clock.now_ms()
        if not any(_matters(each, now_ms) for each in attributes):
            return None
        self._log.check_serving()
        self._fence.check()
        plan = self._plan(records, attributes, now_ms, window_ms)
        if plan.staged and batch.header.has_producer:
            plan.staged.update(dict.fromkeys(plan.kept, now_ms))
        return self._carry_out(batch, plan, window_ms)

    def _plan(
        self,
        records: list[Record],
        attributes: Sequence[Attributes],
        now_ms: int,
        window_ms: int,
    ) -> _Plan:
        plan = _Plan(records, {}, {}, {}, {}, {})
        firsts: dict[bytes, int] = {}
        for place, each in enumerate(attributes):
            if each.idempotency_key is not None and window_ms > 0:
                digest = key_digest(each.idempotency_key)
                if digest in firsts:
                    plan.repeats[place] = firsts[digest]
                    continue
                if self._is_known(plan, place, digest, now_ms - window_ms):
                    continue
                firsts[digest] = place
                plan.digests[place] = digest
            if each.deliver_at_ms is not None and each.deliver_at_ms > now_ms:
                plan.staged[place] = each.deliver_at_ms
        if plan.digests and len(self._arrivals.window) >= _KEYS_MAX:
            raise Unavailable(
                f"{self._log.name} remembers {_KEYS_MAX} idempotency keys, which is its limit"
            )
        return plan

    def _is_known(self, plan: _Plan, place: int, digest: bytes, keep_from_ms: int) -> bool:
        in_flight = self._in_flight.get(digest)
        if in_flight is not None:
            plan.waits_for[place] = in_flight
            return True
        first = self._arrivals.window.find(digest, keep_from_ms=keep_from_ms)
        if first is not None:
            plan.known[place] = first
        return first is not None

    def _carry_out(
        self, batch: RecordBatch, plan: _Plan, window_ms: int
    ) -> "asyncio.Future[Placed]":
        """Propose what has to be; nothing awaits before the keys are in flight."""
        appended: asyncio.Future[Offset] | None = None
        staged: asyncio.Future[int] | None = None
        if plan.kept or (batch.header.has_producer and not plan.staged):
            appended = self._append(batch, plan)
        if plan.staged:
            staged = self._stage(batch, plan)
        answer = self._workplace.loop.create_task(_finish(self._log, plan, appended, staged))
        for place, digest in plan.digests.items():
            self._in_flight[digest] = _InFlight(answer, place)
        answer.add_done_callback(lambda done: self._settled(plan, done))
        if plan.digests:
            self._mark_later(window_ms)
        return answer

    def _append(self, batch: RecordBatch, plan: _Plan) -> "asyncio.Future[Offset]":
        """Append the records that are left; a producer's sequence counts also without any."""
        kept = plan.kept
        if len(kept) < len(plan.records):
            data = rewrite_batch(batch.header, [plan.records[place] for place in kept])
            batch = RecordBatch(read_header(data), memoryview(data))
        if batch.header.has_producer:
            left = batch
            return self._in_sequence(batch.header, lambda: self._log.propose_records(left))
        return self._log.propose_records(batch)

    def _stage(self, batch: RecordBatch, plan: _Plan) -> "asyncio.Future[int]":
        """Propose the stage entry; the future gives its index."""
        places = sorted(plan.staged)
        if len(places) > STAGED_MAX:
            raise InvalidBatch(
                f"a batch schedules {len(places)} messages, at most {STAGED_MAX} are possible"
            )
        has_producer = batch.header.has_producer
        event = Staged(
            dues=pack_numbers(plan.staged[place] for place in places),
            records=pack_records([plan.records[place] for place in places]),
            at_ms=self._workplace.clock.now_ms(),
            keys={
                number: StagedKey(plan.digests[place], plan.records[place].timestamp)
                for number, place in enumerate(places)
                if place in plan.digests
            },
            header=bytes(batch.data[:HEADER_BYTES]) if has_producer else b"",
        )
        index: asyncio.Future[int] = self._workplace.loop.create_future()

        def propose() -> asyncio.Future[Offset]:
            payload = encode_stage_event(event)
            proposed = self._log.propose_state(payload, is_sequenced=has_producer)
            proposed.add_done_callback(lambda done: _hand_on(done, index))
            return self._offset_of(proposed)

        try:
            if not has_producer:
                propose()
                return index
            sequenced = self._in_sequence(batch.header, propose)
        except PenstockError as error:
            if plan.kept:
                # The records are on their way already; what becomes of them is heard of first.
                index.set_exception(error)
                return index
            raise
        if not index.done():
            sequenced.add_done_callback(lambda done: _hand_on_repeat(done, index))
        return index

    def _offset_of(self, proposed: "asyncio.Future[int]") -> "asyncio.Future[Offset]":
        """What a producer whose messages are staged is answered: where the next record goes."""
        offset: asyncio.Future[Offset] = self._workplace.loop.create_future()

        def settle(done: "asyncio.Future[int]") -> None:
            error = done.exception()
            if offset.done():
                return
            if error is not None:
                offset.set_exception(error)
                # Whoever waits for the index hears of it.
                offset.exception()
            else:
                offset.set_result(self._log.high_watermark)

        proposed.add_done_callback(settle)
        return offset

    def _settled(self, plan: _Plan, answer: "asyncio.Future[Placed]") -> None:
        _ignore(answer)
        for digest in plan.digests.values():
            self._in_flight.pop(digest, None)

    # The time of keys.

    def _mark_later(self, window_ms: int) -> None:
        if self._mark_timer is None:
            interval_ms = max(_MARK_INTERVAL_MS_MIN, window_ms // _MARKS_PER_WINDOW)
            self._mark_timer = self._workplace.loop.call_later(
                interval_ms / 1000, self._mark, window_ms
            )

    def _mark(self, window_ms: int) -> None:
        """Tell the time to the keys, until all of them are forgotten."""
        self._mark_timer = None
        if not self._log.is_serving or not len(self._arrivals.window):
            return
        now_ms = self._workplace.clock.now_ms()
        try:
            event = KeysMarked(at_ms=now_ms, keep_from_ms=now_ms - window_ms)
            self._log.propose_state(encode_stage_event(event)).add_done_callback(_ignore)
        except PenstockError:
            # The next round has it.
            pass
        self._mark_later(window_ms)

    def close(self) -> None:
        """Stop the timer."""
        if self._mark_timer is not None:
            self._mark_timer.cancel()
            self._mark_timer = None


def _matters(attributes: Attributes, now_ms: int) -> bool:
    is_later = attributes.deliver_at_ms is not None and attributes.deliver_at_ms > now_ms
    return is_later or attributes.idempotency_key is not None


async def _finish(
    log: ReplicatedLog,
    plan: _Plan,
    appended: "asyncio.Future[Offset] | None",
    staged: "asyncio.Future[int] | None",
) -> Placed:
    """Wait for everything that the batch depends on, and say where each message went."""
    waits_for: list[asyncio.Future[Any]] = [each.batch for each in plan.waits_for.values()]
    waits_for += [each for each in (appended, staged) if each is not None]
    if waits_for:
        await asyncio.wait(waits_for)
    for error in [each.exception() for each in waits_for]:
        if error is not None:
            raise error
    base = None if appended is None else appended.result()
    index = None if staged is None else staged.result()
    messages: list[Placement | None] = [None] * len(plan.records)
    for place, first in plan.known.items():
        messages[place] = _repeated(first)
    for place, in_flight in plan.waits_for.items():
        first_copy = in_flight.batch.result().messages[in_flight.place]
        messages[place] = msgspec.structs.replace(first_copy, is_duplicate=True)
    for number, place in enumerate(sorted(plan.staged)):
        assert index is not None
        messages[place] = Placement(
            None,
            None if index == _REPEATED else stage_number(index, number),
            plan.records[place].timestamp,
            plan.staged[place],
        )
    for place in plan.kept:
        assert base is not None
        messages[place] = Placement(base + place, None, plan.records[place].timestamp)
    for place, first_place in plan.repeats.items():
        first_one = messages[first_place]
        assert first_one is not None
        messages[place] = msgspec.structs.replace(first_one, is_duplicate=True)
    found = [each for each in messages if each is not None]
    return Placed(_offset_to_answer(log, plan, base, found[0]), found)


def _offset_to_answer(
    log: ReplicatedLog, plan: _Plan, base: Offset | None, first: Placement
) -> Offset:
    """The first offset of the batch, or that of its first copy, or what comes next."""
    if base is not None and plan.kept:
        return base
    return log.high_watermark if first.offset is None else Offset(first.offset)


def _repeated(first: FirstResult) -> Placement:
    return Placement(
        offset=None if first.offset < 0 else first.offset,
        stage_number=None if first.stage_number < 0 else first.stage_number,
        timestamp=first.timestamp,
        due_ms=None if first.due_ms < 0 else first.due_ms,
        is_duplicate=True,
    )


def _hand_on(done: "asyncio.Future[Any]", index: "asyncio.Future[int]") -> None:
    """Give the entry's index, or the error, to whoever waits for it."""
    error = done.exception()
    if error is not None:
        index.set_exception(error)
    else:
        index.set_result(done.result())


def _hand_on_repeat(done: "asyncio.Future[Offset]", index: "asyncio.Future[int]") -> None:
    """The same when the batch came before, and the answer is that of its first copy."""
    error = done.exception()
    if index.done():
        return
    if error is not None:
        index.set_exception(error)
    else:
        index.set_result(_REPEATED)


def _ignore(done: "asyncio.Future[Any]") -> None:
    """Take note of an error that others have heard of, or that nobody waits for."""
    if not done.cancelled():
        done.exception()

"""What the leader of a partition does for messages that wait for their time.

When messages are due, their records are read from the entries that hold them, put into one batch
under the stage's own producer id, and appended. Applying that batch takes them out of the stage, on
every replica: one entry, so a message is either waiting or in the log, and never both or neither.

Crash cases:

- Before the batch is committed: it is committed under the next leader, or it never was. A leader
  serves when it has applied all that can be committed, and then knows who still waits.
- Another node leads while the records are read, and this one leads again when they are: the other
  may have released them, or cancelled or moved some. What was read is dropped and looked for anew.
- The proposal fails while this node leads (a full disk): the log takes proposals again when the
  fate of the batch is known. Only then is the stage looked at again.
- A cancellation or a move is proposed: until it is decided the message is not released, because the
  batch could be committed after it.
- A message that is being released cannot be cancelled or moved any more: its batch may be on its
  way.
- Entries that hold bytes of waiting messages are not deleted: housekeeping asks `first_index`, and
  moves the bytes to new entries where old segments are to go. Both copies are the same, so it does
  not matter which one a reader finds.

Never early: a message is released when this node's clock has reached its time, whatever a timer
says.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from penstock.cluster.partition_fence import PartitionFence
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.topic_machine import (
    TopicMachine,
    decode_event,
    encode_stage_event,
    encode_start_moved,
)
from penstock.cluster.workplace import Workplace
from penstock.delivery import (
    Restaged,
    StageCancelled,
    Staged,
    StageMoved,
    Waiting,
    index_and_place,
    key_digest,
    pack_numbers,
    pack_records,
    stage_id,
    unpack_records,
)
from penstock.errors import Corruption, NotFound
from penstock.ids import TopicPartition
from penstock.record import (
    ID,
    STAGE_PRODUCER_ID,
    Record,
    RecordBatch,
    attributes_of,
    encode_batch,
    read_header,
)

logger = logging.getLogger(__name__)

# One release is one batch.
_RELEASE_MESSAGES_MAX = 2_000
_RELEASE_BYTES_MAX = 1024 * 1024
# The wall clock may be set meanwhile.
_SLEEP_S_MAX = 1.0
_RETRY_S = 0.05
_RESTAGE_MESSAGES_MAX = 2_000
_CLEAR_MESSAGES_MAX = 10_000


class ScheduledRecord(NamedTuple):
    """A message that waits, with its content as it was published."""

    waiting: Waiting
    record: Record


class PartitionStage:
    """The scheduled messages of one partition, as far as its leader drives them."""

    def __init__(
        self,
        place: TopicPartition,
        log: ReplicatedLog,
        machine: TopicMachine,
        workplace: Workplace,
        fence: PartitionFence,
    ) -> None:
        self._number = place.partition
        self._log = log
        self._arrivals = machine.arrivals
        self._stage = machine.arrivals.stage
        self._workplace = workplace
        self._fence = fence
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._release: asyncio.Task[bool] | None = None
        # Messages of cancellations and moves that are not decided, and of the release under way.
        self._held: set[int] = set()
        self._leaving: set[int] = set()
        self.on_released: Callable[[int], None] = lambda _: None
        log.watch(self._look)

    @property
    def count(self) -> int:
        """How many messages wait."""
        return len(self._stage)

    @property
    def first_index(self) -> int | None:
        """The oldest entry that holds bytes of a message that waits."""
        return self._stage.first_index

    # Releasing.

    def _look(self) -> None:
        """Set the timer for the next message; called after every commit."""
        due_ms = self._stage.next_due_ms
        if due_ms is None or self._release is not None or not self._log.is_serving:
            return
        if self._timer is not None and self._timer_due_ms <= due_ms:
            return
        self._set_timer(due_ms)

    def _set_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, due_ms - self._workplace.clock.now_ms()) / 1000
        self._timer_due_ms = due_ms
        self._timer = self._workplace.loop.call_later(min(delay_s, _SLEEP_S_MAX), self._wake)

    def _wake(self) -> None:
        self._timer = None
        due_ms = self._stage.next_due_ms
        if due_ms is None or self._release is not None or not self._log.is_serving:
            return
        if due_ms > self._workplace.clock.now_ms():
            self._set_timer(due_ms)
            return
        self._release = self._workplace.loop.create_task(self._release_due())
        self._release.add_done_callback(self._release_ended)

    def _release_ended(self, task: "asyncio.Task[bool]") -> None:
        self._release = None
        self._leaving.clear()
        if task.cancelled():
            return
        failure = task.exception()
        if failure is None and task.result():
            self._look()
            return
        if failure is not None:
            logger.warning("release failed", extra={"log": self._log.name, "reason": str(failure)})
        if self._timer is None:
            # Messages that are held, or a disk that is full, are looked at again in a moment.
            self._timer_due_ms = 0
            self._timer = self._workplace.loop.call_later(_RETRY_S, self._wake)

    async def _release_due(self) -> bool:
        """Release what is due, one batch after the other; False when nothing could be released."""
        has_released = False
        while self._log.is_serving:
            found = self._stage.due(
                self._workplace.clock.now_ms(),
                count_max=_RELEASE_MESSAGES_MAX,
                except_for=self._held,
            )
            if not found:
                break
            self._leaving = {waiting.number for waiting in found}
            term = self._log.term
            scheduled = _first_bytes(await self._read(found))
            self._leaving = {each.waiting.number for each in scheduled}
            if self._fence.is_closed or self._may_be_past(term) or not scheduled:
                break
            await self._log.propose_records(self._batch_of(scheduled))
            self.on_released(len(scheduled))
            has_released = True
        return has_released

    def _may_be_past(self, term: int) -> bool:
        """Whether another node may have led since this one led in `term`."""
        return self._log.term != term

    def _batch_of(self, scheduled: Sequence[ScheduledRecord]) -> RecordBatch:
        now_ms = self._workplace.clock.now_ms()
        records = [
            Record(
                offset,
                now_ms,
                each.record.key,
                each.record.value,
                (*each.record.headers, (ID, stage_id(self._number, each.waiting.number).encode())),
            )
            for offset, each in enumerate(scheduled)
        ]
        data = encode_batch(records, producer_id=STAGE_PRODUCER_ID)
        return RecordBatch(read_header(data), memoryview(data))

    async def _read(self, found: Sequence[Waiting]) -> list[ScheduledRecord]:
        """Read the records of messages; those that have left the stage meanwhile may be missing."""
        while True:
            try:
                return await self._workplace.in_thread(partial(self._read_records, found))
            except (NotFound, FileNotFoundError):
                # Their bytes were moved, and the segment in which they stood was removed.
                again = (self._stage.find(waiting.number) for waiting in found)
                moved = [waiting for waiting in again if waiting is not None]
                if moved == list(found):
                    raise
                found = moved

    def _read_records(self, found: Sequence[Waiting]) -> list[ScheduledRecord]:
        """Read the records of messages; each entry is read once. Runs in a thread."""
        by_index: dict[int, list[Waiting]] = {}
        for waiting in found:
            by_index.setdefault(index_and_place(waiting.where)[0], []).append(waiting)
        records: dict[int, Record] = {}
        for index, group in by_index.items():
            places = [index_and_place(waiting.where)[1] for waiting in group]
            read = self._records_at(index, places)
            records.update(zip((waiting.number for waiting in group), read, strict=True))
        return [ScheduledRecord(waiting, records[waiting.number]) for waiting in found]

    def _records_at(self, index: int, places: Sequence[int]) -> list[Record]:
        event = decode_event(self._log.log.payload_at(index)[1])
        if not isinstance(event, Staged | Restaged):
            raise Corruption(f"entry {index} of {self._log.name} holds no scheduled messages")
        return unpack_records(event.records, places)

    # What users may do with them.

    async def page(self, *, after: tuple[int, int], count_max: int) -> list[ScheduledRecord]:
        """Return messages in the order of their time, after one with that time and number."""
        self._log.check_serving()
        found = list(itertools.islice(self._stage.in_order(after), count_max))
        return await self._read(found)

    def is_waiting(self, number: int) -> bool:
        """True when a message has not been released yet."""
        return self._stage.find(number) is not None

    async def find(self, numbers: Sequence[int]) -> list[ScheduledRecord]:
        """Return those of these messages that wait."""
        self._log.check_serving()
        found = (self._stage.find(number) for number in numbers)
        return await self._read([each for each in found if each is not None])

    async def cancel(self, numbers: Sequence[int]) -> list[bool]:
        """Forget messages and their keys; say of each whether it was still waiting."""
        at_ms = self._workplace.clock.now_ms()

        async def event_of(free: Sequence[int]) -> StageCancelled:
            keys = await self._digests_of(free)
            return StageCancelled(numbers=pack_numbers(free), at_ms=at_ms, keys=keys)

        return await self._change(numbers, event_of)

    async def _digests_of(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return what the idempotency keys of messages are remembered by, by place."""
        keys = {
            each.waiting.number: attributes_of(each.record.headers).idempotency_key
            for each in await self.find(numbers)
        }
        return {
            place: key_digest(key)
            for place, number in enumerate(numbers)
            if (key := keys.get(number)) is not None
        }

    async def clear(self) -> int:
        """Forget all messages that wait by now; return how many were forgotten.

        When this returns, one that was just being released is in the log.
        """
        self._log.check_serving()
        numbers = self._stage.numbers()
        count = 0
        while numbers:
            kept: list[int] = []
            for first in range(0, len(numbers), _CLEAR_MESSAGES_MAX):
                some = numbers[first : first + _CLEAR_MESSAGES_MAX]
                found = await self.cancel(some)
                kept += [number for number, was in zip(some, found, strict=True) if not was]
            count += len(numbers) - len(kept)
            if kept:
                # A release, or a change by somebody else, is under way.
                await asyncio.sleep(_RETRY_S)
            numbers = [number for number in kept if self.is_waiting(number)]
        return count

    async def move(self, numbers: Sequence[int], *, due_ms: int) -> list[bool]:
        """Give messages another time; say of each whether it was still waiting."""
        at_ms = self._workplace.clock.now_ms()

        async def event_of(free: Sequence[int]) -> StageMoved:
            return StageMoved(numbers=pack_numbers(free), due_ms=due_ms, at_ms=at_ms)

        return await self._change(numbers, event_of)

    async def _change(
        self,
        numbers: Sequence[int],
        event_of: Callable[[Sequence[int]], Awaitable[StageCancelled | StageMoved]],
    ) -> list[bool]:
        self._log.check_serving()
        free = [number for number in numbers if number not in self._leaving | self._held]
        if not free:
            return [False] * len(numbers)
        self._held.update(free)
        try:
            found = await self._log.propose_state(encode_stage_event(await event_of(free)))
        finally:
            self._held.difference_update(free)
            self._look()
        changed = {number for number, was_waiting in zip(free, found, strict=True) if was_waiting}
        return [number in changed for number in numbers]

    # Keeping old segments from staying for good.

    async def restage_below(self, index: int) -> None:
        """Move the bytes of messages out of entries before `index`, on the leader."""
        while self._log.is_serving:
            found = self._stage.below(index, count_max=_RESTAGE_MESSAGES_MAX)
            if not found:
                return
            scheduled = _first_bytes(await self._read(found))
            if not scheduled:
                continue
            event = Restaged(
                numbers=pack_numbers(each.waiting.number for each in scheduled),
                records=pack_records([each.record for each in scheduled]),
            )
            await self._log.propose_state(encode_stage_event(event))

    async def entries_removed(self) -> None:
        """Let all replicas forget the priorities of records that retention took, on the leader.

        Each replica removes segments by itself, so the state must not follow from that.
        """
        start_offset = self._log.log.first_offset
        if self._log.is_serving and self._arrivals.has_priorities_below(start_offset):
            await self._log.propose_state(encode_start_moved(start_offset))


def _first_bytes(scheduled: Sequence[ScheduledRecord]) -> list[ScheduledRecord]:
    """Return the first messages, at least one, that fit one batch."""
    taken: list[ScheduledRecord] = []
    size_bytes = 0
    for each in scheduled:
        record = each.record
        size_bytes += len(record.key or b"") + len(record.value or b"") + 100
        size_bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
        if taken and size_bytes > _RELEASE_BYTES_MAX:
            break
        taken.append(each)
    return taken

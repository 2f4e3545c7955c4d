"""Histories of staged writes at the level of the machines: any order of crashes and retries.

Three partitions and a home apply committed events. Drivers stage, ask for decisions and die;
partitions publish batch by batch and stop anywhere; runs expire. Whatever happens, what is in the
logs in the end is one whole run of every epoch.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.cluster.topic_machine import TopicMachine, encode_write_event
from penstock.cluster.write_events import (
    WriteDecided,
    WriteDone,
    WriteDropped,
    WriteEvent,
    WriteFinished,
    WritePart,
    WriteRefused,
    WriteStaged,
)
from penstock.errors import WriteExpired, WriteNotStaged
from penstock.ids import EntryIndex, Offset
from penstock.log import StateEntry
from penstock.record import Record, encode_batch, read_header, stamp_producer

PARTITIONS = 3
FAR_MS = 10**15


@dataclass
class Run:
    """One run of an epoch: what it has staged, by partition."""

    name: str
    epoch: int
    staged: dict[int, int] = field(default_factory=dict)
    is_refused: bool = False

    @property
    def parts(self) -> tuple[WritePart, ...]:
        return tuple(
            WritePart("t", number, (("s", count),)) for number, count in sorted(self.staged.items())
        )


class Log:
    """A partition: its machine, its staged batches by index, and the values in its log."""

    def __init__(self) -> None:
        self.machine = TopicMachine(producer_expiry_ms=1000)
        self.index = 0
        self.offset = 0
        self.batches: dict[int, bytes] = {}
        self.values: list[str] = []

    def apply(self, event: WriteEvent) -> object:
        self.index += 1
        payload = encode_write_event(event)
        if isinstance(event, WriteStaged):
            self.batches[self.index] = event.batch
        return self.machine.apply_state(StateEntry(self.index, 1, self.offset, payload))

    def publish(self, data: bytearray, value: str) -> None:
        header = read_header(data)
        self.machine.apply_records(header, Offset(self.offset), data)
        self.offset += header.offsets
        self.values.append(value)

    def restart(self) -> None:
        """The machine is rebuilt from its snapshot."""
        snapshot = self.machine.snapshot()
        self.machine = TopicMachine(producer_expiry_ms=1000)
        self.machine.restore(snapshot, EntryIndex(self.index))


class Histories(RuleBasedStateMachine):
    """One writer, three partitions, a home."""

    def __init__(self) -> None:
        super().__init__()
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.home = Log()
        self.run = Run("r0", 0)
        self.runs = {"r0": self.run}
        self.checked: dict[str, tuple[WritePart, ...]] = {}
        self.finished: dict[int, str] = {}
        self.decided: dict[str, WriteDecided] = {}
        self.contents: dict[tuple[str, int], list[str]] = {}

    @property
    def current(self) -> list[Run]:
        """The last runs of the epoch that is not finished."""
        return [run for run in self.runs.values() if run.epoch == len(self.finished)][-3:]

    # The driver.

    @rule(partition=st.integers(0, PARTITIONS - 1), records=st.integers(1, 3))
    @precondition(lambda self: self.open is None)
    def stage(self, partition: int, records: int) -> None:
        number = self.run.staged.get(partition, 0)
        value = f"{self.run.epoch}.{self.run.name}.{number}"
        batch = bytes(encode_batch([Record(n, 0, None, value.encode()) for n in range(records)]))
        event = WriteStaged(
            "w", self.run.epoch, self.run.name, "s", number, batch, "t", 100 + partition, 0
        )
        for _ in range(2):
            # The answer of the first was lost.
            assert self.logs[partition].apply(event)
        self.run.staged[partition] = number + 1
        self.contents.setdefault((self.run.name, partition), []).append(value)

    @rule()
    def driver_is_started_again(self) -> None:
        name = f"r{len(self.runs)}"
        self.run = self.runs[name] = Run(name, len(self.finished))

    @rule(data=st.data())
    @precondition(lambda self: self.open is None)
    def check(self, data: st.DataObject) -> None:
        """The home finds that the batches of a run are there, and may be slow to decide for it."""
        run = data.draw(st.sampled_from(self.current))
        try:
            for part in run.parts:
                self.logs[part.partition].machine.writes.batches("w", run.name, part.stages)
        except WriteNotStaged:
            assert run.is_refused, "what was not refused is there"
        else:
            self.checked[run.name] = run.parts

    @rule(data=st.data())
    @precondition(lambda self: self.checked)
    def decide(self, data: st.DataObject) -> None:
        """The request of a driver, which may have died meanwhile, gets its decision."""
        run = self.runs[data.draw(st.sampled_from(sorted(self.checked)))]
        before = self.open
        try:
            held = self.home.apply(
                WriteDecided("w", run.epoch, run.name, self.checked[run.name], 0)
            )
        except WriteExpired:
            assert run.is_refused
            return
        assert isinstance(held, WriteDecided)
        assert held == (before or self.open)

    # The home and the partitions.

    @property
    def open(self) -> WriteDecided | None:
        return self.home.machine.decisions.open.get("w")

    @rule(place=st.integers(0, 100))
    @precondition(lambda self: self.open is not None and self.open.parts)
    def publish_one_batch(self, place: int) -> None:
        assert self.open is not None
        part = self.open.parts[place % len(self.open.parts)]
        log = self.logs[part.partition]
        writer = log.machine.writes.writers["w"]
        if writer.done_epoch >= self.open.epoch:
            return
        self._publish(log, self.open, part, count=1)

    def _publish(self, log: Log, decision: WriteDecided, part: WritePart, count: int) -> None:
        writes = log.machine.writes
        writer = writes.writers["w"]
        published, sequence = writer.published, writer.sequence
        for number, batch in enumerate(writes.batches("w", decision.run, part.stages)):
            if published <= 0 and count > 0:
                data = bytearray(log.batches[batch.index])
                stamp_producer(
                    memoryview(data), producer_id=writer.producer_id, producer_epoch=0,
                    base_sequence=sequence,
                )  # fmt: skip
                log.publish(data, self.contents[decision.run, part.partition][number])
                count -= 1
            published -= batch.records
            sequence += batch.records
        if count > 0:
            log.apply(WriteDone("w", decision.epoch, sequence, 0))

    @rule()
    @precondition(lambda self: self.open is not None)
    def finish(self) -> None:
        decision = self.open
        assert decision is not None
        for part in decision.parts:
            log = self.logs[part.partition]
            if log.machine.writes.writers["w"].done_epoch < decision.epoch:
                self._publish(log, decision, part, count=10**9)
        self.home.apply(WriteFinished("w", decision.epoch, 0))
        self.finished[decision.epoch] = decision.run
        self.decided[decision.run] = decision
        self.checked.clear()
        self.driver_is_started_again()

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.current))
        if self.home.apply(WriteRefused("w", run.epoch, run.name, 0)):
            run.is_refused = True
            for log in self.logs:
                log.apply(WriteDropped("w", run.name, FAR_MS))
        else:
            assert self.open is not None
            assert self.open.run == run.name

    @rule(place=st.integers(0, PARTITIONS))
    def restart(self, place: int) -> None:
        [*self.logs, self.home][place].restart()

    @invariant()
    def logs_hold_whole_epochs_and_the_beginning_of_the_open_one(self) -> None:
        for number, log in enumerate(self.logs):
            expected = [
                value
                for _, run in sorted(self.finished.items())
                for value in self._wanted(self.decided[run], number)
            ]
            assert log.values[: len(expected)] == expected
            rest = log.values[len(expected) :]
            whole = [] if self.open is None else self._wanted(self.open, number)
            assert rest == whole[: len(rest)]

    def _wanted(self, decision: WriteDecided, partition: int) -> list[str]:
        counts = {part.partition: part.stages[0][1] for part in decision.parts}
        return self.contents.get((decision.run, partition), [])[: counts.get(partition, 0)]


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)

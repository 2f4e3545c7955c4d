"""Those who write whole epochs, exactly once, as a streaming query does.

Each keeps to the contract of a writer: epochs one after the other, and any number of runs of an
epoch, because it dies and is started again, or believes so. The runs of an epoch hold different
values, so that what is in the topic tells which of them counted.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.broker import Broker, NewTopic, StageBatch, WriteCommit, WritePart
from penstock.errors import Conflict, TopicExists
from penstock.record import Record, decode_records, encode_batch, split_batches
from tests.simulation.fleet.actors import Actor
from tests.simulation.referee import require

if TYPE_CHECKING:
    from tests.simulation.fleet.fleet import Fleet

TOPIC = "epochs"
_PARTITIONS = 2
_END_US = 500_000
_END_ROUNDS = 120


@dataclass(frozen=True)
class _Run:
    """One attempt at an epoch: the batches of each partition, each a list of values."""

    writer: str
    epoch: int
    name: str
    batches: dict[int, list[list[bytes]]]

    @property
    def values(self) -> list[bytes]:
        """All its values, those of each partition in their order."""
        return [value for batches in self.batches.values() for batch in batches for value in batch]

    @property
    def commit(self) -> WriteCommit:
        """What is said when all is staged."""
        parts = tuple(
            WritePart(TOPIC, partition, (("task", len(batches)),))
            for partition, batches in self.batches.items()
        )
        return WriteCommit(
            home=TOPIC, writer=self.writer, epoch=self.epoch, run=self.name, parts=parts
        )


class Stager(Actor):
    """One writer."""

    def __init__(self, fleet: "Fleet", interval_us: int, writer: str) -> None:
        super().__init__(fleet, interval_us)
        self.committed: dict[int, str] = {}
        """Epochs that were confirmed, and the run that counted; empty when nobody said."""
        self._writer = writer
        self._epoch = 0
        self._run: _Run | None = None
        self._runs: list[_Run] = []
        self._refused: set[str] = set()
        """Runs that shall never count, as was confirmed."""

    async def act(self, broker: Broker) -> None:
        """Go on with a run, or begin another one; an old one may still be going on."""
        if TOPIC not in broker.metadata.topics:
            if self._fleet.is_worth_creating(len(broker.metadata.nodes)):
                await self._create(broker)
            return
        if self._run is None or self._random.random() < 0.2:
            self._run = self._new_run()
        run = self._run
        try:
            await self._stage(broker, run)
            if self._random.random() < 0.1:
                await self._abort(broker, run)
            else:
                await self._commit(broker, run)
        except Conflict:
            # It has expired, was refused, or is long over.
            self._run = None

    async def _create(self, broker: Broker) -> None:
        factor = self._fleet.draw_factor(len(broker.metadata.nodes))
        with suppress(TopicExists):
            made = await broker.topics.create(NewTopic(TOPIC, _PARTITIONS, factor))
            assert made is not None
            self._fleet.founder.created.add(made.topic_id)

    def _new_run(self) -> _Run:
        batches: dict[int, list[list[bytes]]] = {}
        for partition in range(_PARTITIONS):
            count = self._random.choice((0, 1, 1, 2))
            if count:
                batches[partition] = [self._new_values() for _ in range(count)]
        name = f"run {self._fleet.next_number()}"
        run = _Run(self._writer, self._epoch, name, batches)
        self._runs.append(run)
        return run

    def _new_values(self) -> list[bytes]:
        count = self._random.choice((1, 3))
        return [b"<row %d>" % self._fleet.next_number() for _ in range(count)]

    async def _stage(self, broker: Broker, run: _Run) -> None:
        for partition, batches in run.batches.items():
            for number, values in enumerate(batches):
                now_ms = broker.now_ms()
                records = [Record(place, now_ms, None, value) for place, value in enumerate(values)]
                await broker.writes.stage(
                    StageBatch(
                        topic=TOPIC, partition=partition, writer=run.writer, epoch=run.epoch,
                        run=run.name, stage="task", number=number, home=TOPIC,
                        batch=bytes(encode_batch(records)),
                    )
                )  # fmt: skip

    async def _abort(self, broker: Broker, run: _Run) -> None:
        if await broker.writes.abort(run.commit):
            self._refused.add(run.name)
            if self._run is run:
                self._run = None

    async def _commit(self, broker: Broker, run: _Run) -> None:
        answer = await broker.writes.commit(run.commit)
        if not answer.is_done:
            return
        known = self.committed.get(run.epoch)
        require(
            not (known and answer.run) or known == answer.run,
            "two runs of an epoch count",
            run.epoch,
            known,
            answer.run,
        )
        self.committed[run.epoch] = answer.run or known or ""
        if run.epoch == self._epoch:
            self._epoch += 1
            self._run = None

    # The end.

    def check_all(self) -> None:
        """Without faults, what was decided is published: each epoch once, and whole."""
        for _ in range(_END_ROUNDS):
            if not self._fleet.open_writes(TOPIC):
                break
            self._fleet.advance(_END_US)
        require(not self._fleet.open_writes(TOPIC), "a write is never finished", self._writer)
        for contents in self._fleet.contents_of(TOPIC):
            self._check([_values(content) for content in contents])

    def _check(self, partitions: list[list[bytes]]) -> None:
        places = {
            value: (partition, place)
            for partition, values in enumerate(partitions)
            for place, value in enumerate(values)
        }
        counts = Counter(value for values in partitions for value in values)
        require(not counts or max(counts.values()) == 1, "a row is there twice", counts)
        counted: dict[int, _Run] = {}
        for run in self._runs:
            there = [value in places for value in run.values]
            require(all(there) or not any(there), "a part of a run is there", run)
            if not any(there):
                continue
            require(run.name not in self._refused, "a run counts that was refused", run)
            require(run.epoch not in counted, "two runs of an epoch are there", run)
            counted[run.epoch] = run
        self._check_confirmed(counted)
        order = [places[value] for epoch in sorted(counted) for value in counted[epoch].values]
        for partition in range(_PARTITIONS):
            own = [place for where, place in order if where == partition]
            require(own == sorted(own), "epochs are not in their order", self._writer, own)

    def _check_confirmed(self, counted: dict[int, _Run]) -> None:
        by_name = {run.name: run for run in self._runs}
        for epoch, name in self.committed.items():
            run = by_name.get(name) if name else counted.get(epoch)
            if name:
                require(run is not None, "a run counts that nobody made", epoch, name)
            if run is not None and run.values:
                require(counted.get(epoch) == run, "a confirmed epoch is not there", epoch, name)


def _values(content: bytes) -> list[bytes]:
    """The rows of one replica of a partition, in their order."""
    if not content:
        return []
    return [
        record.value or b""
        for batch in split_batches(memoryview(bytearray(content)))
        for record in decode_records(batch.data)
    ]

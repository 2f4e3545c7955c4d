"""Staged writes: every epoch is published once and whole, whatever dies in between."""

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from penstock.broker import (
    Broker,
    Committed,
    NewTopic,
    StageBatch,
    WriteCommit,
    WritePart,
)
from penstock.broker.staged_writes import StagedParts
from penstock.errors import (
    InvalidRequest,
    PenstockError,
    StageFull,
    StageTooLarge,
    Unavailable,
    WriteExpired,
    WriteNotStaged,
    WriterFenced,
)
from penstock.ids import TopicPartition
from penstock.record import Record, encode_batch
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import SimMachine, records, run, values

PARTITIONS = 2
HEADERS = (("a", b"b"),)


def batch_of(broker: Broker, *texts: str, headers: Any = ()) -> bytes:
    return bytes(
        encode_batch(
            [
                Record(number, broker.now_ms(), None, text.encode(), headers)
                for number, text in enumerate(texts)
            ]
        )
    )


async def stage(
    broker: Broker, run_: str, *batches: bytes, epoch: int = 0, partition: int = 0,
    stage_: str = "task", writer: str = "w", first: int = 0,
) -> list[bool]:  # fmt: skip
    return [
        await broker.writes.stage(
            StageBatch(
                topic="orders", partition=partition, writer=writer, epoch=epoch, run=run_,
                stage=stage_, number=first + number, home="orders", batch=batch,
            )
        )
        for number, batch in enumerate(batches)
    ]  # fmt: skip


def commit_of(
    run_: str, parts: Iterable[tuple[int, int]], *, epoch: int = 0, writer: str = "w"
) -> WriteCommit:
    """Return the commit of a run with one stage; `parts` are partitions and counts of batches."""
    return WriteCommit(
        home="orders", writer=writer, epoch=epoch, run=run_,
        parts=tuple(WritePart("orders", number, (("task", count),)) for number, count in parts),
    )  # fmt: skip


async def until(is_so: Callable[[], bool]) -> None:
    """Let time pass until something is so."""
    for _ in range(10_000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never was so")


def texts(broker: Broker, partition: int = 0) -> list[str]:
    found = values(broker.partition(TopicPartition("orders", partition)))
    return [(value or b"").decode() for value in found]


def test_staged_batches_are_published_by_their_commit_and_not_before() -> None:
    async def scene() -> None:
        broker = await started()
        await stage(broker, "r", batch_of(broker, "a", "b"), batch_of(broker, "c"))
        await stage(broker, "r", batch_of(broker, "d"), partition=1)
        assert texts(broker) == []
        assert [each.records for each in await broker.writes.staged("orders")] == [3, 1]

        committed = await broker.writes.commit(commit_of("r", [(0, 2), (1, 1)]))

        assert committed == Committed(is_done=True, run="r")
        assert (texts(broker), texts(broker, 1)) == (["a", "b", "c"], ["d"])
        assert await broker.writes.staged("orders") == []
        status = await broker.writes.status("orders", "w")
        assert (status.committed_epoch, status.publishing_epoch) == (0, None)
        await broker.close()

    run(scene())


def test_a_commit_names_the_stages_that_count_in_their_order() -> None:
    async def scene() -> None:
        broker = await started()
        for name in ("failed", "second", "first"):
            await stage(broker, "r", batch_of(broker, name), stage_=name)
        stages = (("first", 1), ("second", 1))
        commit = WriteCommit(
            home="orders", writer="w", epoch=0, run="r", parts=(WritePart("orders", 0, stages),)
        )

        await broker.writes.commit(commit)

        assert texts(broker) == ["first", "second"]
        assert await broker.writes.staged("orders") == []
        await broker.close()

    run(scene())


def test_a_repeated_epoch_does_nothing_and_an_older_one_is_fenced() -> None:
    async def scene() -> None:
        broker = await started()
        for epoch in range(2):
            assert await stage(broker, "r", batch_of(broker, f"{epoch}"), epoch=epoch) == [True]
            await broker.writes.commit(commit_of("r", [(0, 1)], epoch=epoch))

        assert await stage(broker, "again", batch_of(broker, "x"), epoch=1) == [False]
        repeated = await broker.writes.commit(commit_of("again", [(0, 1)], epoch=1))

        assert repeated.is_done
        with pytest.raises(WriterFenced, match="epoch 0 of writer 'w' comes after epoch 1"):
            await stage(broker, "old", batch_of(broker, "x"), epoch=0)
        with pytest.raises(WriterFenced):
            await broker.writes.commit(commit_of("old", [], epoch=0))
        assert texts(broker) == ["0", "1"]
        await broker.close()

    run(scene())


def test_a_commit_of_what_is_not_staged_publishes_nothing() -> None:
    async def scene() -> None:
        broker = await started()
        await stage(broker, "r", batch_of(broker, "a"))

        with pytest.raises(WriteNotStaged, match="number 1 of 2 is missing"):
            await broker.writes.commit(commit_of("r", [(0, 2)]))
        with pytest.raises(WriteNotStaged):
            await broker.writes.commit(commit_of("r", [(0, 1), (1, 1)]))

        assert texts(broker) == []
        await broker.writes.commit(commit_of("r", [(0, 1)]))
        assert texts(broker) == ["a"]
        await broker.close()

    run(scene())


def test_the_first_decision_counts_where_a_partition_could_not_publish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        broker = await started()
        publish = StagedParts.publish
        broken = {1}

        async def publish_unless_broken(self: StagedParts, request: Any) -> bool:
            if request.part.partition in broken:
                raise Unavailable("this partition has no leader")
            return await publish(self, request)

        monkeypatch.setattr(StagedParts, "publish", publish_unless_broken)
        for number in range(PARTITIONS):
            await stage(broker, "first", batch_of(broker, f"first-{number}"), partition=number)
        waiting = asyncio.ensure_future(broker.writes.commit(commit_of("first", [(0, 1), (1, 1)])))
        await until(lambda: texts(broker) != [])

        # The driver is started again, with other rows and one partition less.
        assert await stage(broker, "second", batch_of(broker, "second"), partition=1) == [True]
        again = asyncio.ensure_future(broker.writes.commit(commit_of("second", [(1, 1)])))
        await asyncio.sleep(1)
        assert texts(broker, 1) == []
        broken.clear()

        assert (await again).run == "first"
        assert (await waiting).run == "first"
        assert (texts(broker), texts(broker, 1)) == (["first-0"], ["first-1"])
        assert await broker.writes.staged("orders") == []
        await broker.close()

    run(scene())


def test_what_was_never_committed_expires_and_can_never_be_committed() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine, write_stage_expiry_ms=60_000, writer_expiry_ms=120_000)
        await stage(broker, "r", batch_of(broker, "a"))
        partition = broker.partition(TopicPartition("orders", 0))

        machine.clock.advance(60_000)
        await broker.writes.expire(partition)
        assert len(await broker.writes.staged("orders")) == 1
        machine.clock.advance(1)
        await broker.writes.expire(partition)

        assert await broker.writes.staged("orders") == []
        await stage(broker, "r", batch_of(broker, "a"))
        with pytest.raises(WriteExpired, match="waited too long"):
            await broker.writes.commit(commit_of("r", [(0, 1)]))
        await stage(broker, "again", batch_of(broker, "b"))
        await broker.writes.commit(commit_of("again", [(0, 1)]))
        assert texts(broker) == ["b"]
        machine.clock.advance(120_001)
        await broker.writes.expire(partition)
        assert (await broker.writes.status("orders", "w")).committed_epoch is None
        assert partition.writes.staged.writers == {}
        await broker.close()

    run(scene())


def test_what_was_decided_never_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine, write_stage_expiry_ms=1000)
        publish = StagedParts.publish

        async def refuse(*_: Any) -> bool:
            raise Unavailable("not yet")

        monkeypatch.setattr(StagedParts, "publish", refuse)
        await stage(broker, "r", batch_of(broker, "a"))
        waiting = asyncio.ensure_future(broker.writes.commit(commit_of("r", [(0, 1)])))
        decisions = broker.partition(TopicPartition("orders", 0)).writes.decisions
        await until(lambda: bool(decisions.open))
        machine.clock.advance(1_000_000)
        await broker.writes.expire(broker.partition(TopicPartition("orders", 0)))
        assert not await broker.writes.abort(commit_of("r", [(0, 1)]))
        monkeypatch.setattr(StagedParts, "publish", publish)

        assert (await waiting).run == "r"
        assert texts(broker) == ["a"]
        await broker.close()

    run(scene())


def test_an_aborted_run_is_dropped() -> None:
    async def scene() -> None:
        broker = await started()
        await stage(broker, "r", batch_of(broker, "a"))

        assert await broker.writes.abort(commit_of("r", [(0, 1)]))

        assert await broker.writes.staged("orders") == []
        with pytest.raises(PenstockError):
            await broker.writes.commit(commit_of("r", [(0, 1)]))
        await broker.close()

    run(scene())


def test_a_run_that_counted_is_not_aborted_any_more() -> None:
    async def scene() -> None:
        broker = await started()
        await stage(broker, "r", batch_of(broker, "a"))
        await stage(broker, "other", batch_of(broker, "b"))
        await broker.writes.commit(commit_of("r", [(0, 1)]))

        assert not await broker.writes.abort(commit_of("r", [(0, 1)]))
        assert await broker.writes.abort(commit_of("other", [(0, 1)]))
        assert (await broker.writes.commit(commit_of("other", [(0, 1)]))).run == "r"
        await stage(broker, "later", batch_of(broker, "c"), epoch=1)
        await broker.writes.commit(commit_of("later", [(0, 1)], epoch=1))

        # Which run of an older epoch counted is forgotten.
        assert not await broker.writes.abort(commit_of("r", [(0, 1)]))
        assert texts(broker) == ["a", "c"]
        await broker.close()

    run(scene())


def test_entries_of_staged_batches_are_kept_until_the_epoch_is_done() -> None:
    async def scene() -> None:
        broker = await started()
        partition = broker.partition(TopicPartition("orders", 0))
        reader = partition.log.entry_reader
        assert reader is not None
        before = partition.log.applied_index
        await stage(broker, "r", batch_of(broker, "a"), batch_of(broker, "b"))

        assert reader.first_index == before + 1
        await broker.writes.commit(commit_of("r", [(0, 2)]))
        assert reader.first_index is None
        await broker.close()

    run(scene())


def test_staged_bytes_have_a_limit() -> None:
    async def scene() -> None:
        broker = await started(write_stage_bytes_max=20_000)
        large = batch_of(broker, "x" * 6_000)

        await stage(broker, "r", large)
        with pytest.raises(StageTooLarge, match="write_stage_bytes_max is 20000"):
            await stage(broker, "r", large, large, first=1)
        with pytest.raises(StageFull, match="write_stage_bytes_max is 20000"):
            await stage(broker, "r", large, large, writer="other")
        await broker.writes.commit(commit_of("r", [(0, 1)]))
        await stage(broker, "r", large, writer="other", first=1)
        await broker.close()

    run(scene())


def test_a_batch_that_could_not_be_published_is_not_staged() -> None:
    async def scene() -> None:
        broker = await started()
        damaged = bytearray(batch_of(broker, "a"))
        damaged[-1] ^= 1

        for bad in (b"", b"nonsense", bytes(damaged)):
            with pytest.raises(InvalidRequest):
                await stage(broker, "r", bad)
        with pytest.raises(InvalidRequest, match="penstock-priority is 'x'"):
            # Found out at the commit, it would keep the epoch open for good.
            await stage(broker, "r", batch_of(broker, "a", headers=(("penstock-priority", b"x"),)))
        with pytest.raises(InvalidRequest, match="writer is '' of 0 characters"):
            await stage(broker, "r", batch_of(broker, "a"), writer="")
        await broker.close()

    run(scene())


def test_scheduled_messages_of_a_write_wait_for_their_time() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        due_ms = broker.now_ms() + 1000
        headers = (("penstock-deliver-at", str(due_ms).encode()),)
        await stage(
            broker, "r", batch_of(broker, "later", headers=headers), batch_of(broker, "now")
        )

        await broker.writes.commit(commit_of("r", [(0, 2)]))
        await stage(broker, "r", batch_of(broker, "next"), epoch=1)
        await broker.writes.commit(commit_of("r", [(0, 1)], epoch=1))

        assert texts(broker) == ["now", "next"]
        machine.clock.advance(1000)
        await until(lambda: len(texts(broker)) == 3)
        assert texts(broker) == ["now", "next", "later"]
        await broker.close()

    run(scene())


def test_a_topic_that_is_deleted_does_not_hold_up_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        broker = await started()
        await broker.topics.create(NewTopic("gone", partitions=1))
        publish = StagedParts.publish

        async def publish_after_deletion(self: StagedParts, request: Any) -> bool:
            if request.part.topic == "gone" and "gone" in broker.metadata.topics:
                await broker.topics.delete("gone")
            return await publish(self, request)

        monkeypatch.setattr(StagedParts, "publish", publish_after_deletion)
        await stage(broker, "r", batch_of(broker, "a"))
        await broker.writes.stage(
            StageBatch(
                topic="gone", partition=0, writer="w", epoch=0, run="r", stage="task", number=0,
                home="orders", batch=batch_of(broker, "b"),
            )
        )  # fmt: skip
        parts = tuple(WritePart(topic, 0, (("task", 1),)) for topic in ("gone", "orders"))

        done = await broker.writes.commit(
            WriteCommit(home="orders", writer="w", epoch=0, run="r", parts=parts)
        )

        assert done.is_done
        assert texts(broker) == ["a"]
        await broker.close()

    run(scene())


class Driver:
    """Writes epochs one after the other; what it knows is what a checkpoint would hold."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs
        self._runs = 0
        self.committed = 0

    @property
    def is_finished(self) -> bool:
        return self.committed == self._epochs

    async def live(self, broker: Broker) -> None:
        """Write what is left; each run has other rows, and may leave a partition out."""
        while not self.is_finished:
            epoch = self.committed
            self._runs += 1
            run_ = f"run{self._runs}"
            counts = {number: 1 + (epoch + number) % 2 for number in range(PARTITIONS)}
            if self._runs % 3 == 0:
                del counts[self._runs % PARTITIONS]
            for partition, count in counts.items():
                batches = [
                    batch_of(broker, f"{epoch}.{run_}.{number}a", f"{epoch}.{run_}.{number}b")
                    for number in range(count)
                ]
                await stage(broker, run_, *batches, epoch=epoch, partition=partition)
            await broker.writes.commit(commit_of(run_, counts.items(), epoch=epoch))
            self.committed += 1


def check_once(broker: Broker, epochs: int) -> None:
    """Every epoch is there once, whole, in order, and from one run only."""
    found = [[text.split(".") for text in texts(broker, number)] for number in range(PARTITIONS)]
    for epoch in range(epochs):
        runs = {each[1] for part in found for each in part if each[0] == str(epoch)}
        assert len(runs) == 1, f"epoch {epoch} comes from {runs}"
        (run_,) = runs
        left_out = int(run_[3:]) % PARTITIONS if int(run_[3:]) % 3 == 0 else None
        for number, part in enumerate(found):
            count = 0 if number == left_out else 1 + (epoch + number) % 2
            expected = [f"{place}{end}" for place in range(count) for end in "ab"]
            assert [each[2] for each in part if each[0] == str(epoch)] == expected
    for part in found:
        order = [int(each[0]) for each in part]
        assert order == sorted(order)


@pytest.mark.parametrize("way", ["crash", "kill"])
def test_every_epoch_is_published_once_and_whole_whenever_the_machine_stops(way: str) -> None:
    epochs = 2

    async def first_life(machine: SimMachine, driver: Driver, stop: int) -> bool:
        broker = await started(machine)
        begun = machine.disk.operations
        machine.disk.stop_before(stop)
        await asyncio.wait([asyncio.ensure_future(driver.live(broker))], timeout=120)
        return machine.disk.operations > begun + stop

    async def second_life(machine: SimMachine, driver: Driver) -> None:
        broker = await started(machine)
        await asyncio.wait_for(driver.live(broker), 600)
        check_once(broker, epochs)
        machine.clock.advance(broker.options.write_stage_expiry_ms + 1)
        for partition in broker.partitions:
            await broker.writes.expire(partition)
        assert await broker.writes.staged("orders") == []
        await broker.close()

    with pytest.MonkeyPatch.context() as patch:
        # What the machine does not survive is reported by nobody, as in a real crash.
        patch.setattr(asyncio.BaseEventLoop, "call_exception_handler", lambda *_: None)
        stop, was_stopped = 0, True
        while was_stopped:
            machine, driver = SimMachine(), Driver(epochs)
            was_stopped = run(first_life(machine, driver, stop))
            if way == "crash":
                machine.disk.crash(Random(stop))
            else:
                machine.disk.kill()
            run(second_life(machine, driver))
            stop += 1
    assert stop > 20


def test_records_keep_their_headers_and_times() -> None:
    async def scene() -> None:
        broker = await started()
        await stage(broker, "r", batch_of(broker, "a", headers=HEADERS))

        await broker.writes.commit(commit_of("r", [(0, 1)]))

        (record,) = records(broker.partition(TopicPartition("orders", 0)))
        assert (record.value, record.headers) == (b"a", HEADERS)
        await broker.close()

    run(scene())

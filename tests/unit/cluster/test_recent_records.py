"""Records that are read for delivery: which ones come, and how many are kept."""

from crc32c import crc32c

from penstock.cluster.recent_records import RecentRecords, RecordBudget
from penstock.record import (
    HEADER_BYTES,
    Codec,
    Record,
    RecordBatch,
    encode_batch,
    read_header,
    split_batches,
)
from tests.unit.cluster.workplaces import SimMachine, batch, run


def test_runs_are_read_across_batches_and_single_records_out_of_them() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        for first in range(0, 30, 3):
            await partition.publish(batch(*(str(first + number).encode() for number in range(3))))
        records = RecentRecords(partition.log, RecordBudget())

        found = records.read([(2, 8), (20, 22)])

        assert [each and each.offset for each in found] == [2, 3, 4, 5, 6, 7, 20, 21]
        assert [each and each.value for each in found][:2] == [b"2", b"3"]
        one = records.get(29)
        assert one is not None
        assert one.value == b"29"

    run(scene())


def test_a_plain_run_needs_no_closer_look_and_others_say_so() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        await partition.publish(batch(b"a", b"b", b"c"))
        marked = encode_batch([Record(0, 0, None, b"d", (("name", b"value"),))])
        await partition.publish(split_batches(marked)[0])
        records = RecentRecords(partition.log, RecordBudget())
        alone = RecentRecords(partition.log, RecordBudget())

        assert [each.value for each in records.read_plain((0, 1)) or ()] == [b"a"]
        assert records.read_plain((0, 4)) is None
        assert alone.read_plain((3, 4)) is None

    run(scene())


def test_records_keep_their_places_in_a_batch_that_has_lost_some() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        # As compaction leaves it.
        gaps = memoryview(encode_batch([Record(0, 0, None, b"b"), Record(2, 0, None, b"d")]))
        await partition.publish(RecordBatch(read_header(gaps), gaps))
        await partition.publish(batch(b"e"))
        records = RecentRecords(partition.log, RecordBudget())

        found = records.read([(0, 4)])

        assert [each and each.value for each in found] == [b"b", None, b"d", b"e"]
        assert records.read_plain((3, 4)) is None

    run(scene())


def test_bytes_that_are_no_records_hold_up_nothing_behind_them() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        garbage = encode_batch([Record(0, 0, None, b"b"), Record(1, 0, None, b"c")])
        garbage[HEADER_BYTES:] = b"\x00" * (len(garbage) - HEADER_BYTES)
        garbage[17:21] = crc32c(garbage[21:]).to_bytes(4, "big")
        view = memoryview(garbage)
        await partition.publish(batch(b"a"))
        await partition.publish(RecordBatch(read_header(view), view))
        await partition.publish(batch(b"d"))
        records = RecentRecords(partition.log, RecordBudget())

        found = records.read([(0, 4)])

        assert [each and each.value for each in found] == [b"a", None, None, b"d"]

    run(scene())


def test_a_compressed_batch_with_more_than_goes_out_together_is_not_plain() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        values = [Record(number, 0, None, b"x" * 1_000_000) for number in range(9)]
        await partition.publish(split_batches(encode_batch(values, codec=Codec.ZSTD))[0])
        records = RecentRecords(partition.log, RecordBudget())

        assert records.read_plain((0, 9)) is None
        assert len(records.read([(0, 9)])) == 9

    run(scene())


def test_partitions_share_a_budget_and_the_one_that_read_last_keeps_its_records() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        await partition.publish(batch(b"x" * 1_000))
        budget = RecordBudget(bytes_max=1_500)
        first, second = (RecentRecords(partition.log, budget) for _ in range(2))

        first.get(0)
        alone = budget.total_bytes
        second.get(0)

        assert 1_000 < alone == budget.total_bytes < 1_500
        second.clear()
        assert budget.total_bytes == 0

    run(scene())

"""Records come out of an archive as they went in: in order, once, whatever the files are."""

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Corruption
from penstock.spark import RecordRange, archive_reading
from penstock.spark.archive_reading import ArchiveReader
from penstock.spark.archive_table import FILE_SCHEMA, ArchiveTable
from penstock.spark.schema import COLUMNS_WITH_HEADERS
from tests.unit.spark.archives import DAY_MS, NOON_MS, ORDERS, new_table, record_batch, write_files


def read(table: ArchiveTable, start: int, end: int, partition: int = 0) -> pa.Table:
    records = RecordRange("orders", partition, start, end)
    batches = ArchiveReader(table, ORDERS).read(records, columns=COLUMNS_WITH_HEADERS)
    return pa.Table.from_batches(batches, schema=record_batch([]).schema)


@settings(max_examples=25, deadline=None)
@given(
    days=st.lists(st.integers(0, 2), min_size=1, max_size=60),
    cuts=st.sets(st.integers(1, 59)),
    bounds=st.tuples(st.integers(0, 130), st.integers(0, 130)),
    window=st.sampled_from([1, 500, 1 << 20]),
)
def test_a_range_comes_whole_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    days: list[int],
    cuts: set[int],
    bounds: tuple[int, int],
    window: int,
) -> None:
    table = new_table(tmp_path_factory.mktemp("archive"))
    # Every other offset is missing, as compaction leaves it.
    everything = record_batch(
        range(0, 2 * len(days), 2), times_ms=[NOON_MS + day * DAY_MS for day in days]
    )
    edges = sorted({0, len(days), *(cut for cut in cuts if cut < len(days))})
    for begin, stop in pairwise(edges):
        files = write_files(table, everything.slice(begin, stop - begin))
        table.add(ORDERS, files, {0: 2 * stop})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_reading, "WINDOW_BYTES", window)
        found = read(table, *bounds)

    wanted = [row for row in everything.to_pylist() if bounds[0] <= row["offset"] < bounds[1]]
    assert found.to_pylist() == wanted


def test_partitions_do_not_mix(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    batches = [record_batch(range(5), partition=number) for number in (0, 1)]
    # As one file of both, which compaction may make.
    table.add(ORDERS, write_files(table, *batches), {0: 5, 1: 5})

    assert read(table, 0, 9, partition=1).to_batches()[0] == batches[1]
    reader = ArchiveReader(table, ORDERS)
    assert (reader.partitions, reader.start(1), reader.end(1)) == ([0, 1], 0, 5)


def test_a_time_is_found_where_it_comes_first(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    times = [NOON_MS, NOON_MS + 5, NOON_MS + 3, NOON_MS + DAY_MS, NOON_MS + 4]
    table.add(ORDERS, write_files(table, record_batch(range(10, 15), times_ms=times)), {0: 15})
    reader = ArchiveReader(table, ORDERS)

    found = [reader.find_time(0, NOON_MS + each) for each in (-1, 0, 1, 4, 6, DAY_MS, DAY_MS + 1)]

    assert found == [10, 10, 11, 11, 13, 13, None]
    assert reader.start(0) == 10
    assert reader.find_time(1, 0) is None


def test_a_file_that_is_lost_or_damaged_is_told_with_its_place(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for start in (0, 10):
        files = write_files(table, record_batch(range(start, start + 10)))
        table.add(ORDERS, files, {0: start + 10})
    path = tmp_path / "archive" / table.files(ORDERS)[1].path
    whole = path.read_bytes()
    place = f"topic orders partition 0 offset 10: the archive at {tmp_path}/archive"

    values = pq.read_metadata(path).row_group(0).column(FILE_SCHEMA.get_field_index("value"))
    last = values.data_page_offset + values.total_compressed_size - 1
    path.write_bytes(whole[:last] + bytes([whole[last] ^ 1]) + whole[last + 1 :])
    with pytest.raises(Corruption, match=f"{place} cannot read its file topic=.* CRC"):
        read(table, 0, 20)
    path.write_bytes(whole[:50])
    with pytest.raises(Corruption, match=f"{place} cannot read its file"):
        read(table, 0, 20)
    path.unlink()
    with pytest.raises(Corruption, match=f"{place} lacks its file"):
        read(table, 0, 20)

    assert read(table, 0, 10).num_rows == 10

import json
from pathlib import Path

import pytest

from penstock.errors import InvalidRequest, NotFound
from penstock.ids import EntryIndex, Term
from penstock.log import (
    LocalDisk,
    LogSettings,
    PartitionLog,
    Snapshot,
    dump_file,
    save_snapshot,
)
from penstock.record import Record

from .entries import append_state, batch_of_records, flush

LOG = f"{0:020}.log"
STATE = f"{0:020}.state"
INDEX = f"{0:020}.index"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    log = PartitionLog(LocalDisk(), tmp_path, LogSettings())
    headers = (("trace", b"1"), ("trace", None))
    batch = batch_of_records(
        Record(0, 500, b"key", b"value", headers), Record(1, 400, None, b"\xff"), codec=4
    )
    log.append_records(batch, term=Term(3), now_ms=77)
    flush(log)
    append_state(log, b"lease", term=3)
    log.close()
    save_snapshot(LocalDisk(), tmp_path, Snapshot(EntryIndex(2), Term(3), b"payload"))
    return tmp_path


def test_records_are_shown_with_their_batch(directory: Path) -> None:
    batch, first, second = dump_file(directory / LOG)

    assert batch == {
        "type": "batch",
        "position": 0,
        "size": (directory / LOG).stat().st_size,
        "base_offset": 0,
        "last_offset": 1,
        "records": 2,
        "term": 3,
        "codec": "zstd",
        "max_timestamp": 500,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "checksum": "ok",
    }
    assert first == {
        "type": "record",
        "offset": 0,
        "timestamp": 500,
        "key": "key",
        "value": "value",
        "headers": [["trace", "1"], ["trace", None]],
    }
    assert (second["key"], second["value"]) == (None, "\\xff")


def test_state_entries_are_shown(directory: Path) -> None:
    (entry,) = dump_file(directory / STATE)

    assert entry == {
        "type": "state",
        "position": 0,
        "size": 37,
        "index": 1,
        "term": 3,
        "next_offset": 2,
        "payload": "lease",
    }


def test_rows_are_shown_with_the_header(directory: Path) -> None:
    header, first, second = dump_file(directory / INDEX)

    assert header == {
        "type": "header",
        "first_index": 0,
        "first_offset": 0,
        "previous_term": 0,
        "created_ms": 77,
        "cleaned_ms": 0,
    }
    assert (first["type"], first["index"], first["kind"], first["records"]) == (
        "row",
        0,
        "records",
        2,
    )
    assert (second["index"], second["kind"], second["first_offset"]) == (1, "state", 2)


def test_checkpoint_and_snapshot_are_shown(directory: Path) -> None:
    (checkpoint,) = dump_file(directory / "checkpoint")
    (snapshot,) = dump_file(directory / "snapshot-00000000000000000002")

    assert (checkpoint["type"], checkpoint["rows"]) == ("checkpoint", 2)
    assert snapshot == {"type": "snapshot", "index": 2, "term": 3, "size": 7}


@pytest.mark.parametrize("name", [LOG, STATE, INDEX, "checkpoint", "snapshot-" + f"{2:020}"])
def test_every_line_can_be_printed_as_json_whatever_byte_is_damaged(
    directory: Path, name: str
) -> None:
    path = directory / name
    whole = path.read_bytes()
    for position in range(0, len(whole), 3):
        if name == INDEX and position < 56:
            continue
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        for line in dump_file(path):
            json.dumps(line)


def test_damage_is_pointed_out(directory: Path) -> None:
    flip(directory / LOG, 70)
    flip(directory / INDEX, 64 + 56 + 3)
    for copy in (1024, 1536):
        flip(directory / "checkpoint", copy)
    flip(directory / f"snapshot-{2:020}", 30)

    assert next(iter(dump_file(directory / LOG)))["checksum"] == "damaged"
    assert list(dump_file(directory / INDEX))[2] == {
        "type": "damage",
        "row": 1,
        "reason": "the checksum does not match",
    }
    assert [line["type"] for line in dump_file(directory / "checkpoint")] == ["damage"]
    assert [line["type"] for line in dump_file(directory / f"snapshot-{2:020}")] == ["damage"]


@pytest.mark.parametrize("name", [LOG, STATE])
def test_bytes_after_the_last_whole_entry_are_counted(directory: Path, name: str) -> None:
    with (directory / name).open("ab") as file:
        file.write(b"torn")

    *_, tail = dump_file(directory / name)

    assert tail["type"] == "tail"
    assert "4 bytes at the end" in str(tail["reason"])


def test_other_files_are_refused(directory: Path) -> None:
    (directory / "notes.txt").write_text("x")

    with pytest.raises(InvalidRequest, match=r"notes\.txt"):
        dump_file(directory / "notes.txt")
    with pytest.raises(NotFound):
        dump_file(directory / "none.log")


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)

"""Showing the files of a partition to people, one dictionary per line of output."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from penstock.errors import InvalidRequest, NotFound, PenstockError
from penstock.log.checkpoint import FILE_NAME as CHECKPOINT_NAME
from penstock.log.checkpoint import CheckpointFile
from penstock.log.disk import Buffer, LocalDisk
from penstock.log.index import HEADER_BYTES, ROW_BYTES, EntryKind, read_index_header, read_row
from penstock.log.segment import INDEX_SUFFIX, LOG_SUFFIX, STATE_SUFFIX
from penstock.log.snapshot import PREFIX as SNAPSHOT_PREFIX
from penstock.log.snapshot import read_snapshot
from penstock.log.state import read_state_entry
from penstock.record import HEADER_BYTES as BATCH_HEADER_BYTES
from penstock.record import Codec, batch_size, decode_records, read_header
from penstock.record.batch import checksum_matches

Line = Mapping[str, object]


def dump_file(path: Path) -> Iterator[Line]:
    """Yield what a file of a partition holds, up to the first byte that makes no sense."""
    if not path.is_file():
        raise NotFound(f"{path} is not a file")
    if path.name == CHECKPOINT_NAME:
        return _dump_checkpoint(path)
    if path.name.startswith(SNAPSHOT_PREFIX):
        return _dump_snapshot(path)
    dumps: dict[str, Callable[[Path, Buffer], Iterator[Line]]] = {
        LOG_SUFFIX: _dump_log,
        STATE_SUFFIX: _dump_state,
        INDEX_SUFFIX: _dump_index,
    }
    if path.suffix not in dumps:
        raise InvalidRequest(
            f"{path.name} is no file of a partition; those end in .log, .state or .index,"
            " or are called checkpoint or snapshot-<index>"
        )
    return dumps[path.suffix](path, LocalDisk().open(path).view())


def _dump_log(path: Path, data: Buffer) -> Iterator[Line]:
    position = 0
    while position + BATCH_HEADER_BYTES <= len(data):
        size = batch_size(data, position)
        if size == 0 or position + size > len(data):
            break
        batch = memoryview(data)[position : position + size]
        yield _batch_line(batch, position)
        yield from _record_lines(batch)
        position += size
    if position < len(data):
        yield _tail_line(path, position, bytes(data[position:]))


def _batch_line(batch: memoryview, position: int) -> Line:
    header = read_header(batch)
    return {
        "type": "batch",
        "position": position,
        "size": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.next_offset - 1,
        "records": header.records,
        "term": header.leader_epoch,
        "codec": _codec_name(header.codec),
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "checksum": "ok" if checksum_matches(batch) else "damaged",
    }


def _record_lines(batch: memoryview) -> Iterator[Line]:
    try:
        for record in decode_records(batch):
            yield {
                "type": "record",
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(content)] for name, content in record.headers],
            }
    except PenstockError as error:
        yield {"type": "damage", "reason": str(error)}


def _dump_state(path: Path, data: Buffer) -> Iterator[Line]:
    position = 0
    while (entry := read_state_entry(data, position)) is not None:
        yield {
            "type": "state",
            "position": position,
            "size": entry.size_bytes,
            "index": entry.index,
            "term": entry.term,
            "next_offset": entry.next_offset,
            "payload": _text(entry.payload),
        }
        position += entry.size_bytes
    if position < len(data):
        yield _tail_line(path, position, bytes(data[position:]))


def _dump_index(path: Path, data: Buffer) -> Iterator[Line]:
    header = read_index_header(data, str(path))
    yield {
        "type": "header",
        "first_index": header.first_index,
        "first_offset": header.first_offset,
        "previous_term": header.previous_term,
        "created_ms": header.created_ms,
        "cleaned_ms": header.cleaned_ms,
    }
    for number in range((len(data) - HEADER_BYTES) // ROW_BYTES):
        row = read_row(data, number)
        if row is None:
            yield {"type": "damage", "row": number, "reason": "the checksum does not match"}
            continue
        kind = EntryKind(row.kind).name.lower()
        yield {"type": "row", "index": header.first_index + number, **row._asdict(), "kind": kind}


def _dump_checkpoint(path: Path) -> Iterator[Line]:
    newest = CheckpointFile(LocalDisk(), path.parent).newest
    if newest is None:
        yield {"type": "damage", "reason": "neither slot holds a whole checkpoint"}
    else:
        yield {"type": "checkpoint", **newest._asdict()}


def _dump_snapshot(path: Path) -> Iterator[Line]:
    snapshot = read_snapshot(LocalDisk(), path)
    if snapshot is None:
        yield {"type": "damage", "reason": "the checksum does not match"}
    else:
        yield {
            "type": "snapshot",
            "index": snapshot.index,
            "term": snapshot.term,
            "size": len(snapshot.payload),
        }


def _tail_line(path: Path, position: int, tail: bytes) -> Line:
    if not tail.strip(b"\0"):
        return {"type": "zeros", "position": position, "size": len(tail)}
    return {
        "type": "tail",
        "position": position,
        "reason": f"{len(tail)} bytes at the end of {path.name} are not a whole entry",
    }


def _codec_name(codec: int) -> str:
    try:
        return Codec(codec).name.lower()
    except ValueError:
        return f"unknown ({codec})"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")

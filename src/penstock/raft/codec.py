"""Messages as bytes.

All integers are big-endian. A message is a header and a body; where it begins and ends is known
from the frame around it, and bytes that are missing or left over make it malformed.

    header             kind u8, sender u32, to u32, term u64
    VoteRequest        last_index u64, last_term u64, flags u8 (1 trial, 2 transfer)
    VoteResponse       incarnation u64, flags u8 (1 trial, 2 granted)
    Append             prev_index u64, prev_term u64, commit u64, count u32,
                       count rows (term u64, kind u8, size u32), count payloads back to back
    AppendResponse     index u64, hint_index u64, hint_term u64, incarnation u64, refused u8
    Heartbeat          commit u64, round u64
    HeartbeatResponse  round u64, index u64, incarnation u64
    InstallSnapshot    index u64, term u64, membership (see `membership`)
    TimeoutNow         nothing
    ReadRequest        context u64
    ReadResponse       context u64, index u64

Heartbeats of many groups between the same two nodes travel as rows of one frame, each with the
group's number (u64) before the fields of the message; the same for their answers.

Encoding copies no payload: `encode` gives a list of buffers to be written one after another, and
the payloads of a decoded append are views of the frame.
"""

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final

from penstock.errors import InvalidRequest
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft.entries import Entry, EntryKind, Payload, Snapshot
from penstock.raft.membership import Incarnation, Membership
from penstock.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)


class _Kind(IntEnum):
    VOTE_REQUEST = 1
    VOTE_RESPONSE = 2
    APPEND = 3
    APPEND_RESPONSE = 4
    HEARTBEAT = 5
    HEARTBEAT_RESPONSE = 6
    INSTALL_SNAPSHOT = 7
    TIMEOUT_NOW = 8
    READ_REQUEST = 9
    READ_RESPONSE = 10


# Looking a member up in its enum costs as much as a call, and these travel with every batch.
_APPEND: Final = _Kind.APPEND
_APPEND_RESPONSE: Final = _Kind.APPEND_RESPONSE
_INSTALL_SNAPSHOT: Final = _Kind.INSTALL_SNAPSHOT

_HEADER = ">BIIQ"
_ROW = struct.Struct(">QBI")
_ROW_BYTES = _ROW.size
# Header and body of each kind: one call reads or writes both.
_LAYOUTS: dict[int, struct.Struct] = {
    _Kind.VOTE_REQUEST: struct.Struct(_HEADER + "QQB"),
    _Kind.VOTE_RESPONSE: struct.Struct(_HEADER + "QB"),
    _Kind.APPEND: struct.Struct(_HEADER + "QQQI"),
    _Kind.APPEND_RESPONSE: struct.Struct(_HEADER + "QQQQB"),
    _Kind.HEARTBEAT: struct.Struct(_HEADER + "QQ"),
    _Kind.HEARTBEAT_RESPONSE: struct.Struct(_HEADER + "QQQ"),
    _Kind.INSTALL_SNAPSHOT: struct.Struct(_HEADER + "QQ"),
    _Kind.TIMEOUT_NOW: struct.Struct(_HEADER),
    _Kind.READ_REQUEST: struct.Struct(_HEADER + "Q"),
    _Kind.READ_RESPONSE: struct.Struct(_HEADER + "QQ"),
}
_APPEND_LAYOUT = _LAYOUTS[_APPEND]
_APPEND_RESPONSE_LAYOUT = _LAYOUTS[_APPEND_RESPONSE]
_HEARTBEAT_ROW = struct.Struct(">QQQQ")
_HEARTBEAT_RESPONSE_ROW = struct.Struct(">QQQQQ")
_PAIR = struct.Struct(">II")
_KINDS = {kind.value: kind for kind in EntryKind}

# Values as `struct` reads them: the kind, sender, receiver and term, then the body.
_Fields = tuple[Any, ...]


def encode(message: Message) -> list[Payload]:
    """The bytes of a message, as buffers to be sent one after another."""
    if isinstance(message, Append):
        return _encode_append(message)
    if isinstance(message, AppendResponse):
        return [_encode_append_response(message)]
    match message:
        case Heartbeat(commit=commit, round=number):
            return [_pack(_Kind.HEARTBEAT, message, commit, number)]
        case HeartbeatResponse(round=number, index=index, incarnation=incarnation):
            return [_pack(_Kind.HEARTBEAT_RESPONSE, message, number, index, incarnation)]
        case VoteRequest(last_index=last_index, last_term=last_term):
            flags = message.is_trial | message.is_transfer << 1
            return [_pack(_Kind.VOTE_REQUEST, message, last_index, last_term, flags)]
        case VoteResponse(incarnation=incarnation):
            flags = message.is_trial | message.is_granted << 1
            return [_pack(_Kind.VOTE_RESPONSE, message, incarnation, flags)]
        case InstallSnapshot(snapshot=snapshot):
            head = _pack(_Kind.INSTALL_SNAPSHOT, message, snapshot.index, snapshot.term)
            return [head, snapshot.membership.encode()]
        case TimeoutNow():
            return [_pack(_Kind.TIMEOUT_NOW, message)]
        case ReadRequest(context=context):
            return [_pack(_Kind.READ_REQUEST, message, context)]
        case ReadResponse(context=context, index=index):
            return [_pack(_Kind.READ_RESPONSE, message, context, index)]


def _pack(kind: _Kind, message: Message, *fields: int) -> bytes:
    return _LAYOUTS[kind].pack(kind, message.sender, message.to, message.term, *fields)


def _encode_append(message: Append) -> list[Payload]:
    entries = message.entries
    head = bytearray(
        _APPEND_LAYOUT.pack(
            _APPEND,
            message.sender,
            message.to,
            message.term,
            message.prev_index,
            message.prev_term,
            message.commit,
            len(entries),
        )
    )
    buffers: list[Payload] = [head]
    for entry in entries:
        head += _ROW.pack(entry.term, entry.kind, entry.size_bytes)
        buffers.append(entry.payload)
    return buffers


def _encode_append_response(message: AppendResponse) -> bytes:
    return _APPEND_RESPONSE_LAYOUT.pack(
        _APPEND_RESPONSE,
        message.sender,
        message.to,
        message.term,
        message.index,
        message.hint_index,
        message.hint_term,
        message.incarnation,
        message.is_refused,
    )


def decode(frame: Payload, start: int = 0) -> Message:
    """Read the message that fills `frame` from `start` on.

    Payloads are views of the frame, which must not change afterwards.
    """
    size_bytes = len(frame)
    if size_bytes <= start:
        raise InvalidRequest("a message of no bytes has no kind")
    kind = frame[start]
    layout = _LAYOUTS.get(kind)
    if layout is None:
        raise InvalidRequest(f"no message has kind {kind}")
    end = start + layout.size
    if size_bytes < end:
        raise InvalidRequest(f"a message of kind {kind} ends after {size_bytes - start} bytes")
    fields = layout.unpack_from(frame, start)
    if kind == _APPEND:
        return _decode_append(fields, frame, end)
    if kind == _INSTALL_SNAPSHOT:
        return _decode_install_snapshot(fields, memoryview(frame)[end:])
    if size_bytes > end:
        raise InvalidRequest(f"{size_bytes - end} bytes follow a message of kind {kind}")
    if kind == _APPEND_RESPONSE:
        return _decode_append_response(fields)
    return _decode_short(kind, fields)


def _decode_append(fields: _Fields, frame: Payload, start: int) -> Append:
    """Read rows from `start` on, and take the payloads behind them."""
    _, sender, to, term, prev_index, prev_term, commit, count = fields
    position = start + count * _ROW_BYTES
    size_bytes = len(frame)
    if size_bytes < position:
        raise InvalidRequest(f"{count} entries do not fit into {size_bytes - start} bytes")
    view = memoryview(frame)
    entries: list[Entry] = []
    index = prev_index
    for row in range(start, position, _ROW_BYTES):
        entry_term, number, entry_bytes = _ROW.unpack_from(frame, row)
        kind = _KINDS.get(number)
        if kind is None:
            raise InvalidRequest(f"no entry has kind {number}")
        index += 1
        end = position + entry_bytes
        entries.append(Entry(index, entry_term, kind, entry_bytes, view[position:end]))
        position = end
    if position != size_bytes:
        raise InvalidRequest(f"entries end at byte {position} of {size_bytes}")
    return Append(sender, to, term, prev_index, prev_term, commit, entries)


def _decode_append_response(fields: _Fields) -> AppendResponse:
    _, sender, to, term, index, hint_index, hint_term, incarnation, is_refused = fields
    return AppendResponse(
        sender, to, term, index, bool(is_refused), hint_index, hint_term, incarnation
    )


def _decode_install_snapshot(fields: _Fields, rest: memoryview) -> InstallSnapshot:
    _, sender, to, term, index, snapshot_term = fields
    snapshot = Snapshot(index, snapshot_term, Membership.decode(rest))
    return InstallSnapshot(sender, to, term, snapshot)


def _decode_short(kind: int, fields: _Fields) -> Message:
    """Messages of fixed size that do not travel with every batch."""
    _, sender, to, term, *body = fields
    ends = (NodeId(sender), NodeId(to), Term(term))
    match kind, body:
        case _Kind.VOTE_RESPONSE, (incarnation, flags):
            is_trial, is_granted = bool(flags & 1), bool(flags & 2)
            return VoteResponse(*ends, is_granted, is_trial, Incarnation(incarnation))
        case _Kind.VOTE_REQUEST, (index, last_term, flags):
            is_trial, is_transfer = bool(flags & 1), bool(flags & 2)
            return VoteRequest(*ends, EntryIndex(index), Term(last_term), is_trial, is_transfer)
        case _Kind.HEARTBEAT, (commit, number):
            return Heartbeat(*ends, EntryIndex(commit), number)
        case _Kind.HEARTBEAT_RESPONSE, (number, index, incarnation):
            return HeartbeatResponse(*ends, number, EntryIndex(index), Incarnation(incarnation))
        case _Kind.TIMEOUT_NOW, ():
            return TimeoutNow(*ends)
        case _Kind.READ_REQUEST, (context,):
            return ReadRequest(*ends, context)
        case _Kind.READ_RESPONSE, (context, index):
            return ReadResponse(*ends, context, EntryIndex(index))
    raise InvalidRequest(f"no message has kind {kind}")


def encode_heartbeats(beats: Sequence[tuple[int, Heartbeat]]) -> bytes:
    """One frame for the heartbeats of many groups; all have the same sender and receiver."""
    pack = _HEARTBEAT_ROW.pack
    rows = [pack(group, beat.term, beat.commit, beat.round) for group, beat in beats]
    return _pair(beat for _, beat in beats) + b"".join(rows)


def decode_heartbeats(frame: Payload) -> list[tuple[int, Heartbeat]]:
    """Read what `encode_heartbeats` wrote."""
    sender, to, rows = _split_pair(frame, _HEARTBEAT_ROW.size)
    return [
        (group, Heartbeat(sender, to, term, commit, number))
        for group, term, commit, number in _HEARTBEAT_ROW.iter_unpack(rows)
    ]


def encode_heartbeat_responses(answers: Sequence[tuple[int, HeartbeatResponse]]) -> bytes:
    """One frame for the answers of many groups; all have the same sender and receiver."""
    pack = _HEARTBEAT_RESPONSE_ROW.pack
    rows = [
        pack(group, answer.term, answer.round, answer.index, answer.incarnation)
        for group, answer in answers
    ]
    return _pair(answer for _, answer in answers) + b"".join(rows)


def decode_heartbeat_responses(frame: Payload) -> list[tuple[int, HeartbeatResponse]]:
    """Read what `encode_heartbeat_responses` wrote."""
    sender, to, rows = _split_pair(frame, _HEARTBEAT_RESPONSE_ROW.size)
    return [
        (group, HeartbeatResponse(sender, to, term, number, index, incarnation))
        for group, term, number, index, incarnation in _HEARTBEAT_RESPONSE_ROW.iter_unpack(rows)
    ]


def _pair(messages: Iterable[Heartbeat | HeartbeatResponse]) -> bytes:
    pairs = {(message.sender, message.to) for message in messages}
    if len(pairs) != 1:
        raise InvalidRequest(f"one frame joins two nodes, not {sorted(pairs)}")
    return _PAIR.pack(*pairs.pop())


def _split_pair(frame: Payload, row_bytes: int) -> tuple[NodeId, NodeId, memoryview]:
    view = memoryview(frame)
    if len(view) < _PAIR.size or (len(view) - _PAIR.size) % row_bytes:
        raise InvalidRequest(f"{len(view)} bytes are no whole number of rows")
    sender, to = _PAIR.unpack_from(view)
    return NodeId(sender), NodeId(to), view[_PAIR.size :]

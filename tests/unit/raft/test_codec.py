"""Messages as bytes, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import (
    Append,
    AppendResponse,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Membership,
    Message,
    ReadRequest,
    ReadResponse,
    Snapshot,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    decode,
    decode_heartbeat_responses,
    decode_heartbeats,
    encode,
    encode_heartbeat_responses,
    encode_heartbeats,
)

from .group import entry, member, voters

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
ENDS = (U32, U32, U64)
MEMBERSHIPS = st.sets(U32, max_size=5).map(
    lambda nodes: Membership.of(member(node, node * 7) for node in nodes)
)


@st.composite
def appends(draw: st.DrawFn) -> Append:
    prev_index = draw(st.integers(0, 2**40))
    payloads = draw(st.lists(st.binary(max_size=50), max_size=6))
    entries = [
        Entry(
            EntryIndex(prev_index + position),
            Term(draw(U64)),
            draw(st.sampled_from(EntryKind)),
            len(payload),
            payload,
        )
        for position, payload in enumerate(payloads, start=1)
    ]
    sender, to, term, prev_term, commit = (draw(one) for one in (*ENDS, U64, U64))
    return Append(
        NodeId(sender),
        NodeId(to),
        Term(term),
        EntryIndex(prev_index),
        Term(prev_term),
        EntryIndex(commit),
        entries,
    )


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    appends(),
    st.builds(VoteRequest, *ENDS, U64, U64, st.booleans(), st.booleans()),
    st.builds(VoteResponse, *ENDS, st.booleans(), st.booleans(), U64),
    st.builds(AppendResponse, *ENDS, U64, st.booleans(), U64, U64, U64),
    st.builds(Heartbeat, *ENDS, U64, U64),
    st.builds(HeartbeatResponse, *ENDS, U64, U64, U64),
    st.builds(InstallSnapshot, *ENDS, st.builds(Snapshot, U64, U64, MEMBERSHIPS)),
    st.builds(TimeoutNow, *ENDS),
    st.builds(ReadRequest, *ENDS, U64),
    st.builds(ReadResponse, *ENDS, U64, U64),
)


@given(MESSAGES)
def test_a_message_is_read_back_as_it_was_written(message: Message) -> None:
    assert decode(b"".join(encode(message))) == message


@given(MESSAGES, st.data())
def test_a_torn_message_is_refused(message: Message, data: st.DataObject) -> None:
    frame = b"".join(encode(message))
    cut = data.draw(st.integers(0, len(frame) - 1))

    with pytest.raises(InvalidRequest):
        decode(frame[:cut])


@given(MESSAGES)
def test_bytes_left_over_are_refused(message: Message) -> None:
    with pytest.raises(InvalidRequest):
        decode(b"".join(encode(message)) + b"x")


@given(st.binary(max_size=200))
def test_random_bytes_give_a_message_or_a_refusal(frame: bytes) -> None:
    try:
        message = decode(frame)
    except InvalidRequest:
        return
    assert b"".join(encode(message))[:17] == frame[:17]


def test_an_unknown_kind_of_entry_is_refused() -> None:
    frame = bytearray(b"".join(encode(append(b"x"))))
    frame[17 + 28 + 8] = 99

    with pytest.raises(InvalidRequest, match="99"):
        decode(frame)


def append(payload: bytes) -> Append:
    return Append(
        NodeId(1),
        NodeId(2),
        Term(1),
        EntryIndex(0),
        Term(0),
        EntryIndex(0),
        [entry(1, 1, payload)],
    )


def test_payloads_are_not_copied() -> None:
    payload = bytes(1000)

    assert encode(append(payload))[1] is payload

    frame = b"".join(encode(append(payload)))
    decoded = decode(frame)
    assert isinstance(decoded, Append)
    view = decoded.entries[0].payload
    assert isinstance(view, memoryview)
    assert view.obj is frame


@given(st.lists(st.tuples(U64, U64, U64, U64), min_size=1, max_size=20))
def test_heartbeats_of_many_groups_share_one_frame(
    rows: list[tuple[int, int, int, int]],
) -> None:
    beats = [
        (group, Heartbeat(NodeId(1), NodeId(2), Term(term), EntryIndex(commit), number))
        for group, term, commit, number in rows
    ]
    answers = [
        (
            group,
            HeartbeatResponse(
                NodeId(2), NodeId(1), Term(term), number, EntryIndex(index), member(2).incarnation
            ),
        )
        for group, term, number, index in rows
    ]

    assert decode_heartbeats(encode_heartbeats(beats)) == beats
    assert decode_heartbeat_responses(encode_heartbeat_responses(answers)) == answers
    assert len(encode_heartbeats(beats)) == 8 + 32 * len(beats)


def test_a_frame_of_heartbeats_joins_exactly_two_nodes() -> None:
    beat = Heartbeat(NodeId(1), NodeId(2), Term(1), EntryIndex(0), 0)
    other = Heartbeat(NodeId(1), NodeId(3), Term(1), EntryIndex(0), 0)

    with pytest.raises(InvalidRequest):
        encode_heartbeats([(1, beat), (2, other)])
    with pytest.raises(InvalidRequest):
        decode_heartbeats(encode_heartbeats([(1, beat)])[:-1])


def test_a_snapshot_offer_carries_its_membership() -> None:
    offer = InstallSnapshot(
        NodeId(1), NodeId(2), Term(3), Snapshot(EntryIndex(9), Term(2), voters(1, 2, 3))
    )

    assert decode(b"".join(encode(offer))) == offer

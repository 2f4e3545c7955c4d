"""Two nodes on one machine: who they say they are, what they send, and what they ask."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from penstock.cluster import links as links_module
from penstock.cluster.links import Hello, Leader, Links
from penstock.config import Address
from penstock.errors import (
    Conflict,
    InvalidRequest,
    InvalidTopicName,
    MemberIdRequired,
    NotLeader,
    PenstockError,
    TopicExists,
    Unavailable,
)
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import Append, Entry, EntryKind, Heartbeat, Incarnation, Message, VoteRequest
from penstock.raft.messages import HeartbeatResponse

HOST = "127.0.0.1"
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
_DEADLINE_S = 120.0


@dataclass
class Owner:
    """A node that keeps what its links tell it."""

    node: NodeId
    cluster_id: str | None = None
    incarnation: int = 0
    heard: list[Hello] = field(default_factory=list)
    received_messages: list[tuple[int, Message]] = field(default_factory=list)
    leaders: list[Leader] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    refuses: PenstockError | None = None
    founds: bool = False
    answer: Callable[[NodeId, int, bytes], Awaitable[bytes]] | None = None

    def hello(self) -> Hello:
        return Hello(1, self.node, self.incarnation or 10 * self.node, self.cluster_id, None)

    def greeted(self, hello: Hello) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.heard.append(hello)
        if self.founds:
            self.cluster_id = "founded"

    def connected(self, node: NodeId) -> None:
        pass

    def disconnected(self, node: NodeId) -> None:
        self.lost.append(node)

    def received(self, group: int, message: Message) -> None:
        self.received_messages.append((group, message))

    def leaders_announced(self, leaders: Iterable[Leader]) -> None:
        self.leaders.extend(leaders)

    async def asked(self, node: NodeId, kind: int, body: bytes) -> bytes:
        assert self.answer is not None
        return await self.answer(node, kind, body)


class Pair:
    """Node 1, which dials, and node 2, which listens."""

    def __init__(self) -> None:
        self.owner_one, self.owner_two = Owner(ONE), Owner(TWO)
        self.one, self.two = Links(ONE, self.owner_one), Links(TWO, self.owner_two)
        self.port = 0

    async def join(self) -> None:
        self.port = await self.two.listen(HOST, 0)
        self.one.know(TWO, Address(HOST, self.port))
        await until(lambda: self.one.connected == {TWO} and self.two.connected == {ONE})

    async def close(self) -> None:
        await self.one.close()
        await self.two.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what travels over sockets, which keep their own time."""
    async with asyncio.timeout(_DEADLINE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


def run_pair(scene: Callable[[Pair], Awaitable[None]]) -> None:
    async def play() -> None:
        pair = Pair()
        try:
            await scene(pair)
        finally:
            await pair.close()

    asyncio.run(play())


def append(payload: bytes, to: NodeId = TWO) -> Append:
    entry = Entry(EntryIndex(4), Term(2), EntryKind.STATE, len(payload), payload)
    return Append(ONE, to, Term(2), EntryIndex(3), Term(1), EntryIndex(3), [entry])


async def raw_peer(port: int, *frames: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"".join(frames))
    return reader, writer


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">IB", 1 + len(body), kind) + body


def hello_frame(node: int, incarnation: int | None = None) -> bytes:
    hello = Hello(1, node, incarnation or 10 * node, None, None)
    return frame(1, msgspec.msgpack.encode(hello))


def test_both_sides_learn_who_the_other_is() -> None:
    async def scene(pair: Pair) -> None:
        pair.owner_one.cluster_id = "blue"
        await pair.join()

        assert pair.owner_one.heard == [Hello(1, 2, 20, None, None)]
        assert pair.owner_two.heard == [Hello(1, 1, 10, "blue", None)]

    run_pair(scene)


def test_a_node_that_nobody_dials_dials_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "_DIALLED_WITHIN_S", 0.01)

    async def scene(pair: Pair) -> None:
        port = await pair.one.listen(HOST, 0)
        pair.two.know(ONE, Address(HOST, port))
        await until(lambda: pair.one.connected == {TWO} and pair.two.connected == {ONE})

        # The other one hears where it is, and leaves the link as it is.
        pair.one.know(TWO, Address(HOST, port))
        await asyncio.sleep(0.05)
        assert pair.owner_one.lost == pair.owner_two.lost == []

    run_pair(scene)


def test_a_peer_that_is_not_where_the_cluster_says_is_looked_for_where_this_node_was_told() -> None:
    async def scene(pair: Pair) -> None:
        port = await pair.two.listen(HOST, 0)
        nobody = await asyncio.start_server(lambda *_: None, HOST, 0)
        gone = nobody.sockets[0].getsockname()[1]
        nobody.close()

        pair.one.told(TWO, Address(HOST, port))
        pair.one.know(TWO, Address(HOST, gone))

        await until(lambda: pair.one.connected == {TWO})

    run_pair(scene)


def test_a_node_that_answers_in_the_place_of_another_is_turned_away() -> None:
    async def scene(pair: Pair) -> None:
        port = await pair.two.listen(HOST, 0)
        pair.one.know(THREE, Address(HOST, port))

        await until(lambda: len(pair.owner_two.heard) > 1)
        assert pair.one.connected == set()
        assert pair.owner_one.heard == []

    run_pair(scene)


def test_a_peer_that_the_owner_refuses_is_turned_away_and_tried_again() -> None:
    async def scene(pair: Pair) -> None:
        pair.owner_two.refuses = Conflict("another cluster")
        port = await pair.two.listen(HOST, 0)
        pair.one.know(TWO, Address(HOST, port))
        await until(lambda: len(pair.owner_one.lost) > 0)
        assert pair.two.connected == set()

        pair.owner_two.refuses = None

        await until(lambda: pair.two.connected == {ONE} and pair.one.connected == {TWO})

    run_pair(scene)


def test_a_cluster_that_is_founded_by_a_hello_is_told_to_its_sender() -> None:
    async def scene(pair: Pair) -> None:
        pair.owner_one.founds = True
        await pair.join()

        await until(lambda: pair.owner_two.heard[-1].cluster_id == "founded")

    run_pair(scene)


def test_a_node_that_has_news_about_itself_says_hello_again() -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()
        pair.owner_two.cluster_id = "blue"

        pair.two.greet_again()

        await until(lambda: pair.owner_one.heard[-1].cluster_id == "blue")

    run_pair(scene)


def test_a_peer_cannot_become_another_node() -> None:
    async def scene(pair: Pair) -> None:
        port = await pair.two.listen(HOST, 0)
        reader, _ = await raw_peer(port, hello_frame(1), hello_frame(3))

        await until(lambda: pair.owner_two.lost == [1])
        assert [hello.node_id for hello in pair.owner_two.heard] == [1]
        await reader.read()

    run_pair(scene)


@pytest.mark.parametrize(
    "frames",
    [
        [frame(2, b"")],
        [b"\0\0\0\0"],
        [struct.pack(">I", 256 * 1024 * 1024 + 1)],
        [hello_frame(1), struct.pack(">I", 256 * 1024 * 1024 + 1)],
        [hello_frame(1), frame(99, b"")],
        [hello_frame(1), frame(2, b"short")],
        [hello_frame(1), frame(7, b"torn")],
        [frame(1, b"no hello")],
        [hello_frame(2)],
    ],
    ids=[
        "no hello first",
        "an empty frame",
        "a frame beyond the limit",
        "a later frame beyond the limit",
        "an unknown kind",
        "a torn message",
        "a torn announcement",
        "a torn hello",
        "the node itself",
    ],
)
def test_a_peer_that_makes_no_sense_is_turned_away(frames: list[bytes]) -> None:
    async def scene(pair: Pair) -> None:
        port = await pair.two.listen(HOST, 0)

        reader, _ = await raw_peer(port, *frames)
        async with asyncio.timeout(_DEADLINE_S):
            await reader.read()

        await until(lambda: pair.two.connected == set())

    run_pair(scene)


def test_a_link_survives_an_owner_that_fails_on_a_message() -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()

        def fail(group: int, message: Message) -> None:
            del pair.owner_one.received
            raise AssertionError(f"impossible: {group}, {message}")

        pair.owner_one.received = fail  # type: ignore[method-assign]
        pair.two.send(7, append(b"x", to=ONE))
        await until(lambda: pair.owner_one.lost == [2])

        await until(lambda: pair.one.connected == {TWO} and pair.two.connected == {ONE})

    run_pair(scene)


def test_messages_of_consensus_arrive_with_their_group_and_in_order() -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()
        vote = VoteRequest(ONE, TWO, Term(3), EntryIndex(9), Term(2), False, False)

        pair.one.send(7, append(b"payload"))
        pair.one.send(8, vote)
        await until(lambda: len(pair.owner_two.received_messages) == 2)

        (group, found), (_, second) = pair.owner_two.received_messages
        assert isinstance(found, Append)
        assert (group, bytes(found.entries[0].payload)) == (7, b"payload")
        assert second == vote

    run_pair(scene)


def test_entries_arrive_where_they_can_be_stamped() -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()

        pair.one.send(7, append(b"payload"))
        await until(lambda: len(pair.owner_two.received_messages) == 1)

        found = pair.owner_two.received_messages[0][1]
        assert isinstance(found, Append)
        memoryview(found.entries[0].payload)[0] = 0

    run_pair(scene)


def test_heartbeats_of_all_groups_share_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()
        sent: list[int] = []
        write = links_module._Link.send

        def note(link: Any, kind: Any, parts: Any) -> None:
            sent.append(kind)
            write(link, kind, parts)

        monkeypatch.setattr(links_module._Link, "send", note)
        beats = [Heartbeat(ONE, TWO, Term(group), EntryIndex(1), 2) for group in range(50)]
        for group, beat in enumerate(beats):
            pair.one.send(group, beat)
        await until(lambda: len(pair.owner_two.received_messages) == 50)
        assert pair.owner_two.received_messages == list(enumerate(beats))
        assert sent == [links_module._Kind.HEARTBEATS]

        answers = [
            HeartbeatResponse(TWO, ONE, Term(group), 2, EntryIndex(1), Incarnation(20))
            for group in range(50)
        ]
        for group, answer in enumerate(answers):
            pair.two.send(group, answer)
        await until(lambda: len(pair.owner_one.received_messages) == 50)
        assert pair.owner_one.received_messages == list(enumerate(answers))

    run_pair(scene)


def test_messages_to_a_node_without_a_link_are_lost_quietly() -> None:
    async def scene(pair: Pair) -> None:
        pair.one.send(7, append(b"x"))
        pair.one.send(7, Heartbeat(ONE, TWO, Term(1), EntryIndex(1), 1))
        await asyncio.sleep(0)
        await pair.join()
        pair.one.send(7, append(b"later"))
        await until(lambda: len(pair.owner_two.received_messages) == 1)

    run_pair(scene)


def is_clogged(link: links_module._Link) -> bool:
    """Whether so much waits to be sent that messages of consensus are lost."""
    transport = link.stream._transport
    assert transport is not None
    return transport.get_write_buffer_size() > links_module._UNSENT_BYTES_MAX


def test_a_peer_that_does_not_keep_up_loses_messages_of_consensus_and_no_requests() -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()
        pair.owner_two.answer = _echo
        link = pair.one._links[TWO]
        chunk = b"x" * (8 * 1024 * 1024)

        # Nothing is read while the loop does not turn, so whatever the socket does not take waits.
        sent = 0
        while not is_clogged(link):
            pair.one.send(7, append(chunk))
            sent += 1
        for _ in range(5):
            pair.one.send(7, append(b"too much"))
        answer = await pair.one.request(TWO, 1, b"and a question", timeout_s=_DEADLINE_S)

        assert answer == b"1 1 and a question"
        assert len(pair.owner_two.received_messages) == sent
        assert not is_clogged(link)
        pair.one.send(7, append(b"room again"))
        await until(lambda: len(pair.owner_two.received_messages) == sent + 1)

    run_pair(scene)


async def _echo(node: NodeId, kind: int, body: bytes) -> bytes:
    return b"%d %d " % (node, kind) + body


def test_requests_of_both_sides_are_answered_whichever_comes_first() -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()
        gate = asyncio.Event()

        async def slow_first(node: NodeId, kind: int, body: bytes) -> bytes:
            if body == b"slow":
                await gate.wait()
            return await _echo(node, kind, body)

        pair.owner_one.answer = pair.owner_two.answer = slow_first
        slow = asyncio.ensure_future(pair.one.request(TWO, 1, b"slow", timeout_s=_DEADLINE_S))
        assert await pair.one.request(TWO, 2, b"quick", timeout_s=_DEADLINE_S) == b"1 2 quick"
        assert await pair.two.request(ONE, 3, b"back", timeout_s=_DEADLINE_S) == b"2 3 back"
        assert not slow.done()
        gate.set()
        assert await slow == b"1 1 slow"

    run_pair(scene)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (NotLeader("ask node 3"), NotLeader),
        (TopicExists("orders"), TopicExists),
        (InvalidTopicName("a/b"), InvalidTopicName),
        (PenstockError("unknown"), PenstockError),
        (MemberIdRequired("again", "id"), PenstockError),
        (type("ClassVar", (PenstockError,), {})("not an error here"), PenstockError),
        (type("OfANewerVersion", (PenstockError,), {})("unknown here"), PenstockError),
    ],
)
def test_an_error_is_raised_where_the_request_came_from(
    raised: PenstockError, expected: type[PenstockError]
) -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()

        async def refuse(node: NodeId, kind: int, body: bytes) -> bytes:
            raise raised

        pair.owner_two.answer = refuse
        with pytest.raises(PenstockError, match=str(raised)) as caught:
            await pair.one.request(TWO, 1, b"", timeout_s=_DEADLINE_S)
        assert type(caught.value) is expected

    run_pair(scene)


def test_a_request_that_nobody_answers_ends_with_its_time() -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()
        late = asyncio.Event()

        async def never(node: NodeId, kind: int, body: bytes) -> bytes:
            await late.wait()
            return b"late"

        pair.owner_two.answer = never
        with pytest.raises(Unavailable, match="did not answer"):
            await pair.one.request(TWO, 1, b"", timeout_s=0.01)
        # An answer that comes too late disturbs nobody.
        late.set()
        assert await pair.one.request(TWO, 1, b"", timeout_s=_DEADLINE_S) == b"late"
        with pytest.raises(Unavailable, match="cannot be reached"):
            await pair.one.request(THREE, 1, b"", timeout_s=_DEADLINE_S)

    run_pair(scene)


def test_requests_under_way_fail_when_the_link_breaks_and_the_link_comes_back() -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()

        async def never(node: NodeId, kind: int, body: bytes) -> bytes:
            await asyncio.Event().wait()
            return b""

        pair.owner_two.answer = never
        asking = asyncio.ensure_future(pair.one.request(TWO, 1, b"", timeout_s=_DEADLINE_S))
        await asyncio.sleep(0)
        pair.two._links[ONE].stream.close()

        with pytest.raises(Unavailable, match="broke"):
            await asking
        await until(lambda: pair.one.connected == {TWO} and pair.two.connected == {ONE})
        assert pair.owner_one.lost == [2]
        assert pair.owner_two.lost == [1]

    run_pair(scene)


def test_a_second_link_of_a_node_takes_the_place_of_the_first() -> None:
    async def scene(pair: Pair) -> None:
        port = await pair.two.listen(HOST, 0)
        first, _ = await raw_peer(port, hello_frame(1))
        await until(lambda: pair.two.connected == {ONE})

        _, second = await raw_peer(port, hello_frame(1))
        async with asyncio.timeout(_DEADLINE_S):
            await first.read()

        assert pair.two.connected == {ONE}
        assert pair.owner_two.lost == []
        second.close()
        await until(lambda: pair.owner_two.lost == [1])

    run_pair(scene)


def test_a_second_node_with_the_number_of_one_that_is_there_is_turned_away_and_told_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()

        async def refuse(node: NodeId, kind: int, body: bytes) -> bytes:
            raise InvalidRequest("requests of that kind are unknown to this node")

        pair.owner_one.answer = refuse
        twin = Links(ONE, Owner(ONE, incarnation=11))
        twin.dial(Address(HOST, pair.port))
        try:
            await until(lambda: len(caplog.records) >= 2)
        finally:
            await twin.close()

        assert pair.two.connected == {ONE}
        assert pair.owner_two.lost == []
        assert [hello.incarnation for hello in pair.owner_two.heard] == [10]

    with caplog.at_level("WARNING"):
        run_pair(scene)
    told = {record.message: vars(record)["reason"] for record in caplog.records}
    assert told.keys() == {"peer turned away", "turned away by a peer"}
    assert "a node 1 with another data directory is running" in told["turned away by a peer"]


def test_a_node_that_lost_its_disk_takes_the_place_of_a_link_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links_module, "_PING_TIMEOUT_S", 0.01)

    async def scene(pair: Pair) -> None:
        port = await pair.two.listen(HOST, 0)
        first, kept = await raw_peer(port, hello_frame(1))
        await until(lambda: pair.two.connected == {ONE})

        _, second = await raw_peer(port, hello_frame(1, incarnation=11))
        async with asyncio.timeout(_DEADLINE_S):
            await first.read()

        assert [hello.incarnation for hello in pair.owner_two.heard] == [10, 11]
        assert pair.two.connected == {ONE}
        assert pair.owner_two.lost == []
        kept.close()
        second.close()

    run_pair(scene)


def test_leaders_are_announced_to_one_peer_or_to_all() -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()

        pair.one.announce([Leader(7, 3, 1), Leader(8, 2**40, 1)], to=TWO)
        pair.one.announce([Leader(9, 1, 1)], to=THREE)
        pair.one.announce([])
        pair.one.announce([Leader(10, 1, 2)])
        await until(lambda: len(pair.owner_two.leaders) == 3)

        expected = [Leader(7, 3, 1), Leader(8, 2**40, 1), Leader(10, 1, 2)]
        assert pair.owner_two.leaders == expected

    run_pair(scene)


def test_a_node_that_has_left_is_not_dialled_any_more() -> None:
    async def scene(pair: Pair) -> None:
        await pair.join()

        pair.one.forget(TWO)

        await until(lambda: pair.one.connected == set() and pair.two.connected == set())
        assert TWO not in pair.one._dialers

    run_pair(scene)

"""Connections between the nodes of a cluster: one for each pair.

The node with the smaller number dials; both sides then use the same connection. When it does not
for a while, the other one does: a node that has lost its memory may not know where all others are,
and they know where it is once it has told one of them. A frame is a size
(uint32), a kind (uint8) and a body. The first frame of each side is its hello: who it is, which
cluster it belongs to, and the membership that the cluster was founded with; it is sent again when
one of these changes. A peer that is not who
it should be is turned away. Why a link does not come about is told in `link_faults`.

    RAFT                 group (uint64), then a message of consensus
    HEARTBEATS           the heartbeats of all groups, in one frame
    HEARTBEAT_RESPONSES  their answers
    REQUEST              number (uint64), kind (uint8), body; answered by
    RESPONSE             number (uint64), status (uint8), body
    LEADERS              who leads which group: group, term (uint64 each), node (uint32)
    BEAT                 which groups rest (`rests`); answered by
    BEAT_ANSWER          which of them do not
    REFUSAL              why the sender wants no link; it closes the connection afterwards

A node that lost its disk comes back with the number of before and another incarnation, and takes
the place of a link that is left from before. If the node of before still answers there, two nodes
have the same number: the one that came later is turned away.

Messages of consensus may be lost, so they are dropped when a peer does not keep up; requests fail
when the connection breaks.
"""

import asyncio
import itertools
import logging
import struct
from collections.abc import Awaitable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, Protocol

import msgspec

from penstock import errors
from penstock.cluster.link_faults import LinkFaults, LinkRefused
from penstock.cluster.link_tls import LinkTls
from penstock.cluster.peer_stream import SCRATCH_BYTES, Buffer, PeerStream
from penstock.config import Address
from penstock.errors import (
    Conflict,
    InvalidRequest,
    PenstockError,
    Unavailable,
)
from penstock.ids import NodeId
from penstock.raft import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    decode,
    decode_heartbeat_responses,
    decode_heartbeats,
    encode,
    encode_heartbeat_responses,
    encode_heartbeats,
)

logger = logging.getLogger(__name__)

_HEAD = struct.Struct(">IB")
_HEAD_BYTES = _HEAD.size
_SIZE_BYTES = 4
_RAFT_HEAD = struct.Struct(">IBQ")
_RAFT_HEAD_BYTES = _RAFT_HEAD.size
_GROUP = struct.Struct(">Q")
_REQUEST = struct.Struct(">QB")
_LEADER = struct.Struct(">QQI")
_UNSENT_BYTES_MAX = 64 * 1024 * 1024
_DIAL_AGAIN_S = 0.2
_DIAL_TIMEOUT_S = 3.0
# How long a node waits to be dialled by one with a smaller number.
_DIALLED_WITHIN_S = 2.0
# How long a node may take to show that it is there when another one has come with its number.
_PING_TIMEOUT_S = 2.0
_REFUSAL_BYTES_MAX = 1_000


class RequestKind(IntEnum):
    """What a node can ask another."""

    PROPOSE = 1
    """Carry out a command on the metadata."""
    MANIFEST = 2
    """Name the files of a snapshot."""
    CHUNK = 3
    """Send a part of one of them."""
    STATUS = 4
    """Describe the partitions that you lead."""
    TRANSFER = 5
    """Hand over the leadership of a group."""
    ENTRY = 6
    """Send the payload of one entry."""
    CALL = 7
    """Carry out a verb on a partition that you lead."""
    PING = 8
    """Answer, whatever it is: one who does not know this refuses, and is there."""
    BELONGING = 9
    """Say whether you know this node, and how much you know."""


class _Kind(IntEnum):
    HELLO = 1
    RAFT = 2
    HEARTBEATS = 3
    HEARTBEAT_RESPONSES = 4
    REQUEST = 5
    RESPONSE = 6
    LEADERS = 7
    BEAT = 8
    BEAT_ANSWER = 9
    REFUSAL = 10


# Looking a member up in its enum costs as much as a call, and this one comes with every batch.
_RAFT: Final = _Kind.RAFT
# What is sent once in a turn of the loop, for all groups together.
_GATHERED: Final = (Heartbeat, HeartbeatResponse)

_OK = 0
_REFUSED = 1


class Hello(msgspec.Struct, frozen=True):
    """What a node says first."""

    version: int
    node_id: int
    incarnation: int
    cluster_id: str | None
    founding: bytes | None


class Leader(msgspec.Struct, frozen=True, array_like=True):
    """Who leads a group, as of a term."""

    group: int
    term: int
    node: int


class LinkOwner(Protocol):
    """What the links of a node need from it."""

    def hello(self) -> Hello:
        """What this node says first, now."""

    def greeted(self, hello: Hello) -> None:
        """A peer has said who it is; raise to turn it away."""

    def connected(self, node: NodeId) -> None:
        """A link is up."""

    def disconnected(self, node: NodeId) -> None:
        """A link broke; what was under way may be lost."""

    def received(self, group: int, message: Message) -> None:
        """A message of consensus has come."""

    def leaders_announced(self, leaders: Iterable[Leader]) -> None:
        """A peer says who leads."""

    def beat_heard(self, node: NodeId, body: bytes) -> None:
        """A peer says which of its groups rest."""

    def beat_answered(self, node: NodeId, body: bytes) -> None:
        """A peer says which of them do not."""

    async def asked(self, node: NodeId, kind: int, body: bytes) -> bytes:
        """Answer a request of a peer, or raise."""


class _Link:
    """One open connection."""

    def __init__(self, node: NodeId, stream: PeerStream, incarnation: int) -> None:
        self.node = node
        self.stream = stream
        self.incarnation = incarnation
        self.waiting: dict[int, asyncio.Future[bytes]] = {}

    def send(self, kind: _Kind, parts: Sequence[Buffer]) -> None:
        size_bytes = _HEAD_BYTES + sum(map(len, parts))
        self.stream.send([_HEAD.pack(size_bytes - _SIZE_BYTES, kind), *parts], size_bytes)

    def send_or_lose(self, group: int, message: Message) -> None:
        """Send a message of consensus; it is lost when the peer does not keep up."""
        parts = encode(message)
        size_bytes = _RAFT_HEAD_BYTES + sum(map(len, parts))
        parts.insert(0, _RAFT_HEAD.pack(size_bytes - _SIZE_BYTES, _RAFT, group))
        self.stream.send(parts, size_bytes, unsent_bytes_max=_UNSENT_BYTES_MAX)

    def close(self) -> None:
        for waiter in self.waiting.values():
            if not waiter.done():
                waiter.set_exception(Unavailable(f"the link to node {self.node} broke"))
        self.waiting.clear()
        self.stream.close()


class Links:
    """All connections of a node to its peers."""

    def __init__(self, node: NodeId, owner: LinkOwner, tls: LinkTls | None = None) -> None:
        self._node = node
        self._owner = owner
        self._tls = tls
        self._links: dict[NodeId, _Link] = {}
        self._dialers: dict[NodeId, asyncio.Task[None]] = {}
        self._addresses: dict[NodeId, Address] = {}
        # Where peers are as this node was told when it started.
        self._told: dict[NodeId, Address] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        # Heartbeats of one tick, by peer, to be sent together.
        self._heartbeats: dict[NodeId, list[tuple[int, Heartbeat]]] = {}
        self._answers: dict[NodeId, list[tuple[int, HeartbeatResponse]]] = {}
        self._is_flush_planned = False
        self._scratch = bytearray(SCRATCH_BYTES)
        self._faults = LinkFaults(lambda: asyncio.get_running_loop().time())

    async def listen(self, host: str, port: int) -> int:
        """Accept peers; return the port."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: PeerStream(self._scratch, self._accept),
            host,
            port,
            ssl=self._tls.accepting if self._tls else None,
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def know(self, node: NodeId, address: Address) -> None:
        """Learn or change the address of a peer, and keep a link to it."""
        if node == self._node:
            return
        self._addresses[node] = address
        if node not in self._dialers:
            self._dialers[node] = self._spawn(self._keep_dialling(node))

    def told(self, node: NodeId, address: Address) -> None:
        """Learn where a peer should be from whoever started this node.

        It is tried in turn with what the cluster says: when all nodes come back elsewhere, none of
        them can tell the others.
        """
        self._told[node] = address
        self.know(node, address)

    def dial(self, address: Address) -> None:
        """Reach a node whose number is not known; afterwards it is known by its hello.

        It is tried until nodes of the cluster are known and one is reached. A link alone says
        nothing: whoever was told to join this node may have dialled before it belongs anywhere.
        """
        self._spawn(self._dial_until_joined(address))

    async def _dial_until_joined(self, address: Address) -> None:
        while not (self._links and self._dialers):
            await self._dial_once(address, expected=None)
            await asyncio.sleep(_DIAL_AGAIN_S)

    def forget(self, node: NodeId) -> None:
        """Drop a peer that has left the cluster."""
        self._addresses.pop(node, None)
        self._told.pop(node, None)
        dialer = self._dialers.pop(node, None)
        if dialer is not None:
            dialer.cancel()
        link = self._links.get(node)
        if link is not None:
            link.stream.close()

    @property
    def connected(self) -> set[NodeId]:
        """The peers that can be reached now."""
        return set(self._links)

    # Sending.

    def send(self, group: int, message: Message) -> None:
        """Send a message of consensus, or lose it."""
        if isinstance(message, _GATHERED):
            self._gather(group, message)
            return
        link = self._links.get(message.to)
        if link is not None:
            link.send_or_lose(group, message)

    def _gather(self, group: int, message: Heartbeat | HeartbeatResponse) -> None:
        if isinstance(message, Heartbeat):
            self._heartbeats.setdefault(message.to, []).append((group, message))
        else:
            self._answers.setdefault(message.to, []).append((group, message))
        if not self._is_flush_planned:
            self._is_flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush_heartbeats)

    def _flush_heartbeats(self) -> None:
        self._is_flush_planned = False
        heartbeats, self._heartbeats = self._heartbeats, {}
        for node, rows in heartbeats.items():
            if node in self._links:
                self._links[node].send(_Kind.HEARTBEATS, [encode_heartbeats(rows)])
        answers, self._answers = self._answers, {}
        for node, answer_rows in answers.items():
            if node in self._links:
                body = encode_heartbeat_responses(answer_rows)
                self._links[node].send(_Kind.HEARTBEAT_RESPONSES, [body])

    def send_beat(self, to: NodeId, body: bytes) -> None:
        """Send a beat, after the heartbeats that wait: one of a group wakes it again."""
        self._flush_heartbeats()
        if to in self._links:
            self._links[to].send(_Kind.BEAT, [body])

    def send_beat_answer(self, to: NodeId, body: bytes) -> None:
        """Answer a beat."""
        if to in self._links:
            self._links[to].send(_Kind.BEAT_ANSWER, [body])

    def greet_again(self) -> None:
        """Tell all peers that this node has something new to say about itself."""
        hello = msgspec.msgpack.encode(self._owner.hello())
        for link in self._links.values():
            link.send(_Kind.HELLO, [hello])

    def announce(self, leaders: Sequence[Leader], to: NodeId | None = None) -> None:
        """Tell one peer, or all, who leads."""
        body = b"".join(_LEADER.pack(each.group, each.term, each.node) for each in leaders)
        for node, link in self._links.items():
            if to is None or node == to:
                link.send(_Kind.LEADERS, [body])

    async def request(self, node: NodeId, kind: int, body: bytes, *, timeout_s: float) -> bytes:
        """Ask a peer; raise what it raised, or `Unavailable` when it does not answer."""
        link = self._links.get(node)
        if link is None:
            raise Unavailable(f"node {node} cannot be reached")
        number = next(self._numbers)
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        link.waiting[number] = waiter
        link.send(_Kind.REQUEST, [_REQUEST.pack(number, kind), body])
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError as error:
            raise Unavailable(f"node {node} did not answer within {timeout_s} s") from error
        finally:
            link.waiting.pop(number, None)

    # Connecting.

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep_dialling(self, node: NodeId) -> None:
        wait_s = _DIAL_AGAIN_S if self._node < node else _DIALLED_WITHIN_S
        if self._node > node:
            await asyncio.sleep(wait_s)
        for attempt in itertools.count():
            if node in self._links:
                await asyncio.sleep(wait_s)
                continue
            address = self._addresses[node]
            if attempt % 2:
                address = self._told.get(node, address)
            await self._dial_once(address, expected=node)
            await asyncio.sleep(wait_s)

    async def _dial_once(self, address: Address, *, expected: NodeId | None) -> None:
        """Connect and keep the link until it breaks."""
        peer = f"{address.host}:{address.port}"
        try:
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                stream = await self._connect(address)
        except OSError as error:
            self._faults.unreached(peer, error)
        else:
            await self._run_link(stream, expected=expected, dialled=peer)

    async def _connect(self, address: Address) -> PeerStream:
        if self._tls:
            self._tls.follow_files()
        _, stream = await asyncio.get_running_loop().create_connection(
            lambda: PeerStream(self._scratch),
            address.host,
            address.port,
            ssl=self._tls.dialling if self._tls else None,
        )
        return stream

    def _accept(self, stream: PeerStream) -> None:
        self._spawn(self._run_link(stream, expected=None))

    async def _run_link(
        self, stream: PeerStream, *, expected: NodeId | None, dialled: str | None = None
    ) -> None:
        link: _Link | None = None
        peer = dialled or stream.peer_host
        try:
            link = await self._greet(stream, expected)
            await stream.run(partial(self._take, link))
        except OSError as error:
            # Whoever connects here and leaves without a word need not be a peer.
            if link is None and dialled is not None:
                self._faults.unreached(peer, error)
        except LinkRefused as error:
            self._faults.refused(peer, error)
        except (PenstockError, msgspec.MsgspecError, struct.error, ValueError) as error:
            self._faults.turned_away(peer, error)
            _refuse(stream, error)
        except Exception:
            # The link ends, and the one who dials tries again: without this it never would.
            logger.exception("link failed")
        finally:
            self._drop(link, stream)

    async def _greet(self, stream: PeerStream, expected: NodeId | None) -> _Link:
        hello_bytes = msgspec.msgpack.encode(self._owner.hello())
        size_bytes = _HEAD_BYTES + len(hello_bytes)
        head = _HEAD.pack(size_bytes - _SIZE_BYTES, _Kind.HELLO)
        stream.send([head, hello_bytes], size_bytes)
        async with asyncio.timeout(_DIAL_TIMEOUT_S):
            frame = await stream.first_frame()
        if frame[0] != _Kind.HELLO:
            raise InvalidRequest("a peer did not say who it is")
        hello = msgspec.msgpack.decode(memoryview(frame)[1:], type=Hello)
        node = NodeId(hello.node_id)
        if node == self._node:
            raise InvalidRequest(
                f"it calls itself node {node}, as this node does: both have the same node_id, or"
                " the address leads back here"
            )
        if expected is not None and node != expected:
            raise InvalidRequest(f"node {node} answered where node {expected} was expected")
        await self._check_number(hello)
        self._owner.greeted(hello)
        old = self._links.get(node)
        if old is not None:
            old.close()
        link = self._links[node] = _Link(node, stream, hello.incarnation)
        self._greet_if_changed(link, hello_bytes)
        self._owner.connected(node)
        return link

    async def _check_number(self, hello: Hello) -> None:
        """Raise `Conflict` when another node runs that has the number of the one that says hello.

        Nothing of that one is taken in meanwhile, so it cannot register in the place of the other.
        """
        node = NodeId(hello.node_id)
        old = self._links.get(node)
        if old is None or old.incarnation == hello.incarnation:
            return
        try:
            await self.request(node, RequestKind.PING, b"", timeout_s=_PING_TIMEOUT_S)
        except Unavailable:
            return
        except PenstockError:
            pass
        raise Conflict(
            f"a node {node} with another data directory is running, and two nodes cannot have the"
            " same node_id; stop one of them"
        )

    def _greet_if_changed(self, link: _Link, said: bytes) -> None:
        """Say hello again if there is news since the first one, perhaps by the peer's own hello."""
        hello = msgspec.msgpack.encode(self._owner.hello())
        if hello != said:
            link.send(_Kind.HELLO, [hello])

    def _drop(self, link: _Link | None, stream: PeerStream) -> None:
        if link is not None:
            link.close()
            if self._links.get(link.node) is link:
                del self._links[link.node]
                self._owner.disconnected(link.node)
        stream.close()

    # Receiving.

    def _take(self, link: _Link, frame: bytearray) -> None:
        """Take in one frame, whose size is cut off already."""
        kind = frame[0]
        if kind == _RAFT:
            (group,) = _GROUP.unpack_from(frame, 1)
            self._owner.received(group, decode(frame, _RAFT_HEAD_BYTES - _SIZE_BYTES))
        else:
            self._take_rare(link, kind, memoryview(frame)[1:])

    def _take_rare(self, link: _Link, kind: int, body: memoryview) -> None:
        if kind == _Kind.HEARTBEATS:
            for group, heartbeat in decode_heartbeats(body):
                self._owner.received(group, heartbeat)
        elif kind == _Kind.HEARTBEAT_RESPONSES:
            for group, answer in decode_heartbeat_responses(body):
                self._owner.received(group, answer)
        elif kind == _Kind.REQUEST:
            number, request_kind = _REQUEST.unpack_from(body)
            request = bytes(body[_REQUEST.size :])
            self._spawn(self._answer(link, number, request_kind, request))
        elif kind == _Kind.RESPONSE:
            self._take_response(link, body)
        elif kind == _Kind.HELLO:
            hello = msgspec.msgpack.decode(body, type=Hello)
            if hello.node_id != link.node:
                raise InvalidRequest(f"node {link.node} calls itself node {hello.node_id}")
            self._owner.greeted(hello)
        elif kind == _Kind.LEADERS:
            self._owner.leaders_announced([Leader(*row) for row in _LEADER.iter_unpack(body)])
        elif kind == _Kind.BEAT:
            self._owner.beat_heard(link.node, bytes(body))
        elif kind == _Kind.BEAT_ANSWER:
            self._owner.beat_answered(link.node, bytes(body))
        elif kind == _Kind.REFUSAL:
            raise LinkRefused(f"node {link.node} says: {bytes(body).decode(errors='replace')}")
        else:
            raise InvalidRequest(f"node {link.node} sent a frame of unknown kind {kind}")

    async def _answer(self, link: _Link, number: int, kind: int, body: bytes) -> None:
        try:
            answer = await self._owner.asked(link.node, kind, body)
            status = _OK
        except PenstockError as error:
            answer = msgspec.msgpack.encode((type(error).__name__, str(error)))
            status = _REFUSED
        link.send(_Kind.RESPONSE, [_REQUEST.pack(number, status), answer])

    def _take_response(self, link: _Link, body: memoryview) -> None:
        number, status = _REQUEST.unpack_from(body)
        waiter = link.waiting.get(number)
        if waiter is None or waiter.done():
            return
        answer = bytes(body[_REQUEST.size :])
        if status == _OK:
            waiter.set_result(answer)
        else:
            waiter.set_exception(_error_from(answer))

    async def close(self) -> None:
        """Drop all links and accept no more."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in tuple(self._links.values()):
            link.close()


def _refuse(stream: PeerStream, error: Exception) -> None:
    body = str(error).encode()[:_REFUSAL_BYTES_MAX]
    size_bytes = _HEAD_BYTES + len(body)
    stream.send([_HEAD.pack(size_bytes - _SIZE_BYTES, _Kind.REFUSAL), body], size_bytes)


def _error_from(body: bytes) -> PenstockError:
    """Return the error that a peer raised, as this node would have raised it."""
    name, message = msgspec.msgpack.decode(body, type=tuple[str, str])
    cls = getattr(errors, name, PenstockError)
    is_error = isinstance(cls, type) and issubclass(cls, PenstockError)
    if not is_error or cls is errors.MemberIdRequired:
        cls = PenstockError
    error: PenstockError = cls(message)
    return error

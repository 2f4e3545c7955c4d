"""Verbs that only the leader of a partition can carry out, for whichever node was asked.

A door hands a request to the node that it runs on. When that node leads the partition the verb runs
here; otherwise it travels over the link between the two nodes, once, and runs there. What the
leader raises is raised here.

A leader whose process is suspended keeps its links and answers nobody. It is replaced soon, and who
asked it is told to ask again: whether it has done what it was asked for is open.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.cluster import Cluster, RequestKind
from penstock.errors import NotLeader, PenstockError, Unavailable
from penstock.ids import NodeId, TopicPartition

Request = TypeVar("Request", bound=msgspec.Struct)
Reply = TypeVar("Reply")

# A request that comes during an election waits for the next leader, but not for long.
_LEADER_WAIT_S = 3.0
_LOOK_AGAIN_S = 0.02
_ANSWER_TIMEOUT_S = 15.0
# A leader that has handed over still answers what was under way.
_LAST_ANSWERS_S = 1.0


class _Verb(NamedTuple):
    request: type[msgspec.Struct]
    run: Callable[[Any], Awaitable[Any]]


class _Asked(NamedTuple):
    """The leader of a group owes an answer; `limit` ends the wait for it."""

    group: int
    leader: NodeId
    limit: asyncio.Timeout


class Calls:
    """A table of verbs, each with the type of its request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._verbs: dict[str, _Verb] = {}
        # In the order in which they were asked, so that simulations can be repeated.
        self._asked: dict[_Asked, None] = {}
        self._is_look_planned = False
        cluster.on_call = self._called
        cluster.leaders.watch(self._leaders_changed)

    def serve(
        self, verb: str, request: type[Request], run: Callable[[Request], Awaitable[Any]]
    ) -> None:
        """Carry out `verb` with `run`, for this node and for others."""
        assert verb not in self._verbs, f"{verb} is served already"
        self._verbs[verb] = _Verb(request, run)

    def ask(
        self,
        place: TopicPartition,
        verb: str,
        request: msgspec.Struct,
        reply: type[Reply],
        *,
        wait_ms: int = 0,
        answer_s: float = _ANSWER_TIMEOUT_S,
    ) -> Awaitable[Reply]:
        """Carry out a verb on the leader of `place`; `wait_ms` is how long it may wait there.

        Another node must answer within `answer_s` beside that.
        """
        leader = self._leader_now(place)
        if wait_ms:
            answer_s += wait_ms / 1000
        if leader is None:
            return self._ask_when_led(place, verb, request, reply, answer_s=answer_s)
        return self._ask_leader(place, leader, verb, request, reply, answer_s=answer_s)

    async def _ask_when_led(
        self,
        place: TopicPartition,
        verb: str,
        request: msgspec.Struct,
        reply: type[Reply],
        *,
        answer_s: float,
    ) -> Reply:
        leader = await self._wait_leader(place, self._cluster.replicas_of(place).group)
        return await self._ask_leader(place, leader, verb, request, reply, answer_s=answer_s)

    def _ask_leader(
        self,
        place: TopicPartition,
        leader: NodeId,
        verb: str,
        request: msgspec.Struct,
        reply: type[Reply],
        *,
        answer_s: float,
    ) -> Awaitable[Reply]:
        if leader == self._cluster.member.node:
            return self._verbs[verb].run(request)
        return self._ask_while_it_leads(place, leader, verb, request, reply, answer_s=answer_s)

    async def _ask_while_it_leads(
        self,
        place: TopicPartition,
        leader: NodeId,
        verb: str,
        request: msgspec.Struct,
        reply: type[Reply],
        *,
        answer_s: float,
    ) -> Reply:
        limit = asyncio.timeout(None)
        asked = _Asked(self._cluster.replicas_of(place).group, leader, limit)
        self._asked[asked] = None
        try:
            async with limit:
                return await self._ask_other(leader, verb, request, reply, answer_s=answer_s)
        except TimeoutError as error:
            raise Unavailable(
                f"node {leader} was asked, does not lead {place} any more, and has not answered"
            ) from error
        finally:
            del self._asked[asked]

    def _leaders_changed(self) -> None:
        """Look once for all that change in a moment: a node that dies leads many groups."""
        if self._asked and not self._is_look_planned:
            self._is_look_planned = True
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._limit_replaced)

    def _limit_replaced(self) -> None:
        """Wait no longer than for a moment for those who were replaced."""
        self._is_look_planned = False
        last_s = asyncio.get_running_loop().time() + _LAST_ANSWERS_S
        for asked in self._asked:
            leader = self._cluster.leaders.leader_of(asked.group)
            is_replaced = leader is not None and leader.node not in (asked.leader, -1)
            if is_replaced and asked.limit.when() is None:
                asked.limit.reschedule(last_s)

    def ask_node(
        self,
        node: NodeId,
        verb: str,
        request: msgspec.Struct,
        reply: type[Reply],
        *,
        answer_s: float = _ANSWER_TIMEOUT_S,
    ) -> Awaitable[Reply]:
        """Carry out a verb on a node, which may be this one."""
        if node == self._cluster.member.node:
            return self._verbs[verb].run(request)
        return self._ask_other(node, verb, request, reply, answer_s=answer_s)

    async def _ask_other(
        self,
        node: NodeId,
        verb: str,
        request: msgspec.Struct,
        reply: type[Reply],
        *,
        answer_s: float,
    ) -> Reply:
        answer = await self._cluster.links.request(
            node, RequestKind.CALL, _body(verb, request), timeout_s=answer_s
        )
        return msgspec.msgpack.decode(answer, type=reply)

    async def ask_all(self, verb: str, request: msgspec.Struct, reply: type[Reply]) -> list[Reply]:
        """Carry out a verb on every node; those that do not answer are left out."""
        here = self._cluster.member.node
        found: list[Reply] = [await self._verbs[verb].run(request)]
        answers = await asyncio.gather(
            *(
                self._cluster.links.request(
                    NodeId(node),
                    RequestKind.CALL,
                    _body(verb, request),
                    timeout_s=_ANSWER_TIMEOUT_S,
                )
                for node in self._cluster.metadata.nodes
                if node != here
            ),
            return_exceptions=True,
        )
        for answer in answers:
            if not isinstance(answer, BaseException):
                found.append(msgspec.msgpack.decode(answer, type=reply))
            elif not isinstance(answer, Unavailable):
                raise answer
        return found

    def _leader_now(self, place: TopicPartition) -> NodeId | None:
        """Return who leads a partition; None when nobody does or there is no such partition."""
        try:
            return self._known_leader(self._cluster.replicas_of(place).group)
        except PenstockError:
            # It is raised to the one who waits.
            return None

    def _known_leader(self, group: int) -> NodeId | None:
        """Return who leads a group, unless that is this node and it is not ready to."""
        leader = self._cluster.leaders.leader_of(group)
        if leader is None or leader.node < 0:
            return None
        if leader.node == self._cluster.member.node and not self._is_prepared(group):
            return None
        return NodeId(leader.node)

    async def _wait_leader(self, place: TopicPartition, group: int) -> NodeId:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _LEADER_WAIT_S
        while loop.time() < deadline_s:
            await asyncio.sleep(_LOOK_AGAIN_S)
            node = self._known_leader(group)
            if node is not None:
                return node
        leader = self._cluster.leaders.leader_of(group)
        if leader is None or leader.node < 0:
            raise NotLeader(f"{place} has no leader at the moment")
        return NodeId(leader.node)

    def _is_prepared(self, group: int) -> bool:
        """False while this node has been elected and cannot tell yet what is committed."""
        log = self._cluster.replicas.by_group.get(group)
        return log is not None and (log.is_serving or log.failure is not None)

    async def _called(self, body: bytes) -> bytes:
        name, payload = msgspec.msgpack.decode(body, type=tuple[str, bytes])
        verb = self._verbs.get(name)
        if verb is None:
            raise Unavailable(f"this node does not know the verb {name!r}; it may be older")
        request = msgspec.msgpack.decode(payload, type=verb.request)
        return msgspec.msgpack.encode(await verb.run(request))


def _body(verb: str, request: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode((verb, msgspec.msgpack.encode(request)))

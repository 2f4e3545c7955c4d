"""Requests of one node to another, for what travels beside consensus: copies of snapshots, calls.

A request takes the same network as messages do. What is lost, or finds nobody, is noticed as a
broken link is: a while later the request fails.
"""

import asyncio
from random import Random
from typing import TYPE_CHECKING

import msgspec

from penstock.cluster.links import RequestKind
from penstock.cluster.transfer import ChunkRequest
from penstock.errors import PenstockError, Unavailable
from penstock.ids import NodeId
from penstock.testing import Schedule, SimNetwork
from penstock.testing.machine import ANY_LIFE

if TYPE_CHECKING:
    from tests.simulation.node import Node

_NOTICED_S = 0.3


class Requests:
    """What one life of a node asks of others."""

    def __init__(
        self, node: "Node", schedule: Schedule, network: SimNetwork, random: Random
    ) -> None:
        self._node = node
        self._life = node.machine.life
        self._schedule = schedule
        self._network = network
        self._random = random.random

    @property
    def connected(self) -> list[NodeId]:
        """All others, as far as a node can tell."""
        return self._network.others(self._node.member.node)

    async def request(self, node: NodeId, kind: int, body: bytes, *, timeout_s: float) -> bytes:
        """Ask a peer; raise what it raised, or `Unavailable` when it does not answer."""
        loop = self._node.workplace.loop
        answer: asyncio.Future[bytes] = loop.create_future()
        peer = self._node.referee.nodes[node]
        if self._passes(self._node.name, node):
            self._schedule.later_on(
                peer.machine, ANY_LIFE, self._delay_us(), self._arrive, peer, kind, body, answer
            )
        patience_s = min(timeout_s, _NOTICED_S)
        timer = loop.call_later(patience_s, _settle, answer, Unavailable(f"no answer from {node}"))
        try:
            return await answer
        finally:
            timer.cancel()

    def _arrive(
        self, peer: "Node", kind: int, body: bytes, answer: "asyncio.Future[bytes]"
    ) -> None:
        peer.spawn(self._answer(peer, kind, body, answer))

    async def _answer(
        self, peer: "Node", kind: int, body: bytes, answer: "asyncio.Future[bytes]"
    ) -> None:
        result: bytes | PenstockError
        try:
            result = await _answer_of(peer, kind, body)
        except PenstockError as error:
            result = error
        if self._passes(peer.name, self._node.name):
            self._schedule.later_on(
                self._node.machine, self._life, self._delay_us(), _settle, answer, result
            )

    def _passes(self, source: int, target: int) -> bool:
        return (source, target) not in self._network.cuts and self._random() >= self._network.loss

    def _delay_us(self) -> int:
        return int(self._network.delay_us * (0.5 + self._random()))


async def _answer_of(peer: "Node", kind: int, body: bytes) -> bytes:
    """Answer as a cluster does that has this one group."""
    log = peer.log
    if log is None:
        raise Unavailable("the replica is not open")
    log.check_open()
    if kind == RequestKind.MANIFEST:
        _, index = msgspec.msgpack.decode(body, type=tuple[int, int])
        return peer.exchange.offer_manifest(log, index)
    if kind == RequestKind.PROPOSE:
        return await peer.changes.propose_for_peer(body)
    if kind == RequestKind.CALL:
        called: bytes = await peer.services.cluster.on_call(body)
        return called
    assert kind == RequestKind.CHUNK
    return await peer.exchange.offer_chunk(log, msgspec.msgpack.decode(body, type=ChunkRequest))


def _settle(answer: "asyncio.Future[bytes]", result: bytes | PenstockError) -> None:
    if answer.done():
        return
    if isinstance(result, PenstockError):
        answer.set_exception(result)
    else:
        answer.set_result(result)

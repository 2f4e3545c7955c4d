"""Changes of the metadata, carried out by any node through the leader of the metadata.

A node sends its command to the leader, or to a peer that may know the leader. The leader decodes
and checks it before it becomes an entry: whatever is in the log is applied by every node, so bytes
that one of them cannot read must not get there. Commands are sent again when no answer came, so
applying one twice must do no more than applying it once.
"""

import asyncio
import contextlib
from typing import Any

import msgspec

from penstock.cluster.command_checks import check_command, takes_turns
from penstock.cluster.commands import Command, decode_command, encode_command
from penstock.cluster.described import Topic
from penstock.cluster.links import Links, RequestKind
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.workplace import Workplace
from penstock.errors import NotLeader, Unavailable
from penstock.ids import NodeId

# Longer than elections take, and shorter than clients wait, who would not hear the reason then.
_CHANGE_TIMEOUT_S = 10.0
_REQUEST_TIMEOUT_S = 5.0
_ASK_AGAIN_S = 0.1


class _Outcome(msgspec.Struct, frozen=True):
    """What came of a command that was sent to the leader of the metadata."""

    applied_index: int
    topic: Topic | None = None
    number: int | None = None


class MetadataChanges:
    """Carries out commands on the metadata; `log` is this node's replica, once it has one."""

    def __init__(self, metadata: ClusterMetadata, links: Links, workplace: Workplace) -> None:
        self._metadata = metadata
        self._links = links
        self._workplace = workplace
        self.log: ReplicatedLog | None = None
        self._turns = asyncio.Lock()

    async def change(self, command: Command) -> Any:
        """Carry out a command, wherever the leader is; this node has applied it in the end."""
        payload = encode_command(command)
        deadline = self._workplace.loop.time() + _CHANGE_TIMEOUT_S
        while True:
            try:
                return await self._propose_anywhere(payload)
            except Unavailable:
                if self._workplace.loop.time() >= deadline:
                    raise
            await asyncio.sleep(_ASK_AGAIN_S)

    async def propose_for_peer(self, payload: bytes) -> bytes:
        """Propose what a peer asks for, here or where the leader is, and nowhere else."""
        log = self._own_log()
        if log.is_serving:
            outcome = await self._propose_here(log, payload)
        elif log.leader is None or log.leader == log.identity.member.node:
            raise Unavailable(self._without_leader(log))
        else:
            outcome = await self._propose_at(log.leader, payload)
        return msgspec.msgpack.encode(outcome)

    async def _propose_anywhere(self, payload: bytes) -> Any:
        log = self._own_log()
        if log.is_serving:
            outcome = await self._propose_here(log, payload)
        else:
            outcome = await self._propose_at(self._way_to_leader(log), payload)
        await self._wait_applied(log, outcome.applied_index)
        return outcome.topic if outcome.topic is not None else outcome.number

    async def _wait_applied(self, log: ReplicatedLog, index: int) -> None:
        """Wait until this node knows of a change that was carried out.

        It may have lost its way to the leader, or its place in the cluster, since it asked.
        """
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                await log.wait_applied(index)
        except TimeoutError as error:
            raise Unavailable(
                "the change is carried out, but this node has not heard so within"
                f" {_REQUEST_TIMEOUT_S} s: it may be cut off"
            ) from error

    def _own_log(self) -> ReplicatedLog:
        if self.log is None:
            raise NotLeader("this node belongs to no cluster yet")
        return self.log

    def _way_to_leader(self, log: ReplicatedLog) -> NodeId:
        """Return the leader of the metadata, or any peer.

        A node that is new, or comes back with another address, may be known to few.
        """
        connected = self._links.connected
        if log.leader in connected:
            return log.leader
        if not connected:
            raise Unavailable(self._without_leader(log))
        # One that was removed keeps its links for as long as it runs, and knows nobody.
        return min(connected, key=lambda node: (node not in self._metadata.nodes, node))

    def _without_leader(self, log: ReplicatedLog) -> str:
        """Say why nothing can be changed, and whom it takes."""
        own = log.identity.member.node
        voters = {member.node for member in log.raft.membership.voters}
        away = sorted(voters.difference(self._links.connected, {own}))
        reason = "the metadata has no leader at the moment"
        if not away:
            return reason
        return (
            f"{reason}: of nodes {sorted(voters)}, which vote on it, node {own} does not reach"
            f" {away}; most of them must be up before anything can be changed"
        )

    async def _propose_at(self, node: NodeId, payload: bytes) -> _Outcome:
        answer = await self._links.request(
            node, RequestKind.PROPOSE, payload, timeout_s=_REQUEST_TIMEOUT_S
        )
        return msgspec.msgpack.decode(answer, type=_Outcome)

    async def _propose_here(self, log: ReplicatedLog, payload: bytes) -> _Outcome:
        command = decode_command(payload)
        async with self._turns if takes_turns(command) else contextlib.nullcontext():
            check_command(command, self._metadata, log.raft.membership)
            result = await log.propose_state(encode_command(command))
        log.announce_commit()
        topic = result if isinstance(result, Topic) else None
        number = result if isinstance(result, int) else None
        return _Outcome(log.applied_index, topic, number)

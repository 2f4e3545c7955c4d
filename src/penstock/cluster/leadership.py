"""Handing over leadership: when asked, when the node stops, and back to whom it belongs.

A leader hands over by bringing another voter up to date and letting it stand for election at once,
so the group is without a leader for about the time of two writes to the disk, not for an election
timeout. A transfer that does not succeed is given up by consensus after such a timeout; a node that
stops then tries another replica while there is time. Whatever is left is found by an election, as
after a crash.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from penstock.cluster.leader_balance import LeaderBalance, LedGroup
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.links import Links, RequestKind
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.replica_set import ReplicaSet
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.workplace import Workplace
from penstock.errors import PenstockError, PreferredLeaderUnavailable, Unavailable
from penstock.ids import NodeId

logger = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 5.0
_LOOK_AGAIN_S = 0.01
# Groups are given back one after the other, so that clients do not all have to turn at once.
_PAUSE_S = 0.1
# A replica that lacks more than this would keep its producers waiting while it is brought up.
_LAG_MAX = 100


class Leadership:
    """Moves the leadership of this node's groups."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        replicas: ReplicaSet,
        leaders: LeaderTable,
        links: Links,
        workplace: Workplace,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._leaders = leaders
        self._links = links
        self._workplace = workplace
        self._node = replicas.identity.member.node

    async def transfer(self, group: int, to: int) -> None:
        """Let another replica of a group lead, whoever leads it now."""
        leader = self._leaders.leader_of(group)
        if leader is None or leader.node < 0:
            raise Unavailable(f"group {group} has no leader at the moment")
        if leader.node == self._node:
            self.transfer_here(group, to)
            return
        body = msgspec.msgpack.encode((group, to))
        await self._links.request(
            NodeId(leader.node), RequestKind.TRANSFER, body, timeout_s=_REQUEST_TIMEOUT_S
        )

    def transfer_here(self, group: int, to: int) -> None:
        """Let another replica lead a group that this node leads, if that one can take over.

        A leader takes no records while it waits for a successor, so it does not wait for one that
        is not there.
        """
        log = self._replicas.log_of(group)
        log.check_serving()
        if to == self._node:
            # It has been elected since somebody saw another leader.
            return
        follower = next((each for each in log.followers() if each.node == to), None)
        if follower is None:
            raise PreferredLeaderUnavailable(
                f"node {to} has no replica of {log.name} yet, by which it could lead"
            )
        if not follower.is_voter:
            lag_entries = max(0, log.raft.last_index - follower.match)
            raise PreferredLeaderUnavailable(
                f"node {to} is still being filled with {log.name} and lacks {lag_entries} entries;"
                " it can lead when it has them"
            )
        if to not in self._links.connected:
            raise PreferredLeaderUnavailable(
                f"node {to} is out of reach of node {self._node}, which leads {log.name}"
            )
        log.transfer_leader(NodeId(to))

    async def hand_over_all(self, wait_s: float) -> None:
        """Let others lead all groups of this node, as far as that can be had in time."""
        deadline_s = self._workplace.loop.time() + wait_s
        groups = [log for log in self._replicas.logs() if log.is_serving and _successors(log)]
        left = groups
        while left and self._workplace.loop.time() < deadline_s:
            for log in left:
                hand_over(log)
            await asyncio.sleep(_LOOK_AGAIN_S)
            left = [log for log in left if self._is_left_with(log)]
        if groups:
            logger.info("leadership handed over", extra={"groups": len(groups), "left": len(left)})

    def _is_left_with(self, log: ReplicatedLog) -> bool:
        """True until another node is known to lead, so that clients can be sent there."""
        return log.failure is None and log.leader in (None, self._node)

    async def balance_rounds(self, interval_s: float) -> None:
        """Give groups back to those who are meant to lead them, for ever."""
        balance = LeaderBalance(interval_s)
        while True:
            await asyncio.sleep(interval_s)
            balance.forget(log.identity.group for log in self._replicas.logs())
            for each in balance.due(self._led_for_others(), self._workplace.loop.time()):
                self._give_back(each)
                await asyncio.sleep(_PAUSE_S)

    def _led_for_others(self) -> Iterator[LedGroup]:
        for replicas in self._metadata.all_replicas():
            log = self._replicas.by_group.get(replicas.group)
            if log is None or not log.is_serving or replicas.former:
                continue
            wanted = [node for node in replicas.nodes if node not in self._metadata.draining]
            if wanted and wanted[0] != self._node:
                intended = NodeId(wanted[0])
                yield LedGroup(replicas.group, intended, intended in _successors(log))

    def _give_back(self, each: LedGroup) -> None:
        log = self._replicas.by_group.get(each.group)
        if log is not None and log.is_serving:
            with suppress(PenstockError):
                log.transfer_leader(each.intended)
                logger.info("leadership returns", extra={"log": log.name, "to": each.intended})


def hand_over(log: ReplicatedLog) -> bool:
    """Let the replica lead that is furthest; True when that was begun or is under way."""
    if not log.is_serving:
        return False
    if log.raft.transferee is not None:
        return True
    successors = _successors(log)
    if successors:
        log.transfer_leader(successors[0])
    return bool(successors)


def _successors(log: ReplicatedLog) -> list[NodeId]:
    """Return the voters that are in step, those first that are furthest."""
    least = log.raft.last_index - _LAG_MAX
    in_step = [
        follower
        for follower in log.followers()
        if follower.is_active and follower.is_voter and follower.match >= least
    ]
    in_step.sort(key=lambda follower: -follower.match)
    return [follower.node for follower in in_step]

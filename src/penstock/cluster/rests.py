"""Which groups rest, and what two nodes tell each other in place of their heartbeats.

A group that has nothing to say rests (`raft.resting`), and one frame between each pair of nodes
stands for the heartbeats of all groups that do. Every beat a node tells each peer which of the
groups that it leads, and the peer is a member of, are resting, with term and last entry of each.
The peer answers which of these do not rest with it. An idle group costs nothing between two beats;
a beat like the one before is recognised by its bytes, and is answered with the groups that the last
tick has found awake. Only now and then is each of its rows looked at again: that finds replicas
which have failed or were closed while they rested.

- A leader lets a group rest when nothing has happened in it for an election timeout, every member
  has everything, and every member's node was heard of lately.
- A group that a beat names lets its follower rest, if that is in step; if not, the answer names it,
  and the leader wakes. A group that a beat no longer names wakes its follower: so a leader that was
  deposed, has failed, was closed or has restarted is noticed with its next beat.
- A peer that is not heard of for a little less than an election timeout is silent, and every group
  that rests with it wakes. Followers then count the silence into their election timers: they
  campaign when they would have campaigned, had they never rested. A link that breaks wakes them at
  once, and the election is hastened.

Beats and answers may be lost, repeated and overtaken: the next beat names everything again. No
outcome of consensus depends on them, only how soon an election is held.

    beat      rows of group, term, last entry (uint64 each)
    answer    groups (uint64 each)
"""

import struct
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from penstock.cluster.replicated_log import ReplicatedLog
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import RaftSettings, Rest, Role

_ROW = struct.Struct(">QQQ")
_GROUP = struct.Struct(">Q")
# Looking a member up in its enum costs as much as a call.
_LEADER: Final = Role.LEADER
# Of so many like beats of a peer, one is compared row by row.
_BEATS_PER_LOOK = 10


class BeatTransport(Protocol):
    """Carries beats and answers to peers; any of them may be lost."""

    @property
    def connected(self) -> Collection[NodeId]:
        """The peers that can be reached now."""

    def send_beat(self, to: NodeId, body: bytes) -> None:
        """Send a beat after everything that was sent before."""

    def send_beat_answer(self, to: NodeId, body: bytes) -> None:
        """Send the answer to a beat."""


class _Peer:
    """What is known about one node."""

    __slots__ = ("beat", "like_beats", "rows", "silent_ticks")

    def __init__(self) -> None:
        self.silent_ticks = 0
        """Ticks since it was last heard of."""
        self.beat = b""
        """Its last beat, and what that says; nothing after a silence."""
        self.rows: dict[int, Rest] = {}
        self.like_beats = 0
        """How many have come since all rows were looked at."""


class Rests:
    """The clock of a node's groups: it ticks those that are awake, and beats for the others."""

    def __init__(
        self,
        node: NodeId,
        logs: Mapping[int, ReplicatedLog],
        transport: BeatTransport,
        settings: RaftSettings,
    ) -> None:
        self._node = node
        self._logs = logs
        self._transport = transport
        self._beat_ticks = settings.heartbeat_ticks
        # Below the election timeout, so that a follower wakes before its time to campaign; a beat
        # may be late by a tick.
        self._silence_ticks = max(settings.election_ticks - 1, settings.heartbeat_ticks + 2)
        self._ticks = 0
        self._peers: dict[NodeId, _Peer] = {}
        self._resting: list[tuple[int, Rest]] = []
        """What the last beat said to all peers together."""
        self._beats: dict[NodeId, bytes] = {}
        self._awake: set[int] = set()
        """Groups that did not rest when the last tick began."""

    def tick(self) -> None:
        """Let one tick of time pass."""
        # Not `log.rest`: a thousand groups that rest are passed over with every tick.
        awake = [(group, log) for group, log in self._logs.items() if log.raft.rest is None]
        self._awake = {group for group, _ in awake}
        for _, log in awake:
            log.tick()
        for node, peer in self._peers.items():
            peer.silent_ticks += 1
            if peer.silent_ticks == self._silence_ticks:
                self._fell_silent(node, peer)
        self._ticks += 1
        if self._ticks % self._beat_ticks == 0:
            self._beat()

    def broke(self, node: NodeId) -> None:
        """The link to a peer broke; its groups are told so by others."""
        self._peers.pop(node, None)

    def _fell_silent(self, node: NodeId, peer: _Peer) -> None:
        peer.beat = b""
        peer.rows = {}
        for log in tuple(self._logs.values()):
            if log.rest is not None and _is_with(log, node):
                log.wake(peer.silent_ticks)

    # What this node leads.

    def _beat(self) -> None:
        resting = [
            (group, rest)
            for group, log in self._logs.items()
            if log.raft.role is _LEADER and (rest := self._rest_of_led(log)) is not None
        ]
        if resting != self._resting:
            self._resting = resting
            self._beats = self._compose(resting)
        for node in self._transport.connected:
            self._transport.send_beat(node, self._beats.get(node, b""))

    def _rest_of_led(self, log: ReplicatedLog) -> Rest | None:
        raft = log.raft
        if raft.rest is None and raft.is_quiet and self._hears_members_of(log):
            raft.try_rest()
        return log.rest

    def _hears_members_of(self, log: ReplicatedLog) -> bool:
        for member in log.raft.membership.members:
            peer = self._peers.get(member.node)
            is_heard = peer is not None and peer.silent_ticks < self._silence_ticks
            if member.node != self._node and not is_heard:
                return False
        return True

    def _compose(self, resting: list[tuple[int, Rest]]) -> dict[NodeId, bytes]:
        rows: dict[NodeId, list[bytes]] = {}
        for group, rest in resting:
            row = _ROW.pack(group, rest.term, rest.index)
            for member in self._logs[group].raft.membership.members:
                rows.setdefault(member.node, []).append(row)
        return {node: b"".join(parts) for node, parts in rows.items()}

    def answered(self, node: NodeId, body: bytes | memoryview) -> None:
        """A peer has heard a beat; groups that do not rest there wake here."""
        self._peer(node).silent_ticks = 0
        for (group,) in _GROUP.iter_unpack(body):
            log = self._logs.get(group)
            if log is not None and log.raft.role is _LEADER:
                log.wake()

    # What others lead.

    def heard(self, node: NodeId, body: bytes) -> None:
        """A peer says which of the groups that it leads are resting."""
        peer = self._peer(node)
        peer.silent_ticks = 0
        if body != peer.beat:
            self._follow(node, peer, body)
            peer.like_beats = 0
        peer.like_beats += 1
        if peer.like_beats % _BEATS_PER_LOOK == 1:
            awake = [group for group, rest in peer.rows.items() if not self._rests(group, rest)]
        else:
            awake = [group for group in self._awake if group in peer.rows]
        self._transport.send_beat_answer(node, b"".join(map(_GROUP.pack, awake)))

    def _follow(self, node: NodeId, peer: _Peer, body: bytes) -> None:
        rows = {
            group: Rest(Term(term), EntryIndex(index))
            for group, term, index in _ROW.iter_unpack(body)
        }
        for group in peer.rows.keys() - rows.keys():
            log = self._logs.get(group)
            if log is not None and log.leader == node:
                log.wake()
        for group, rest in rows.items():
            log = self._logs.get(group)
            if log is not None and peer.rows.get(group) != rest:
                log.follow_rest(node, rest)
        peer.beat = body
        peer.rows = rows

    def _rests(self, group: int, rest: Rest) -> bool:
        log = self._logs.get(group)
        return log is not None and log.rest == rest

    def _peer(self, node: NodeId) -> _Peer:
        peer = self._peers.get(node)
        if peer is None:
            peer = self._peers[node] = _Peer()
        return peer


def _is_with(log: ReplicatedLog, node: NodeId) -> bool:
    """Whether a replica rests because a node was heard of."""
    if log.raft.role is _LEADER:
        return any(member.node == node for member in log.raft.membership.members)
    return log.leader == node

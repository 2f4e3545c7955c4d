"""How a group that has nothing to say falls silent.

A group in which nothing happens costs its nodes a heartbeat and an answer each few ticks. When all
its members have everything, these say one thing only: that the leader's process is alive and still
leads. Whoever owns the replicas can say that for all groups of a pair of nodes at once, so a
replica may *rest*: it does not tick, and a leader that rests sends no heartbeats. The owner
promises in return:

- a leader rests only while every other member can be heard from, and the owner wakes it when one
  of them falls silent, when a link breaks, or when a member says that it does not rest;
- a follower rests only while its leader says, again and again, that it rests in that term, and the
  owner wakes it when the leader no longer says so or falls silent, with the ticks of that silence:
  its election timer then stands where it would stand had it never rested.

Votes, terms and commits do not depend on any of this, only the timers do. What rests on being heard
is begun anew by a leader that wakes: it has to hear from a majority within the next election
timeout, and a read makes it ask all members as ever.

Whatever happens to a replica wakes it: a message, a proposal, a read, a broken link. One message
says nothing new and does not: the late answer to a leader's last heartbeat.
"""

from typing import Final

from penstock.ids import NodeId
from penstock.raft.candidate import ElectionRules
from penstock.raft.effects import Rest, Role
from penstock.raft.messages import HeartbeatResponse, Message
from penstock.raft.progress import ProgressState

_LEADER: Final = Role.LEADER


class RestRules(ElectionRules):
    """Falling silent and waking up."""

    __slots__ = ()

    @property
    def is_quiet(self) -> bool:
        """Whether this leader has seen nothing happen for a while, and heard all others."""
        return self._is_quiet and self._window_index == self._log.last_index

    def try_rest(self) -> bool:
        """Let a leader rest if nobody lacks anything; whether it rests now."""
        if self.rest is None and self.is_quiet and self._is_even():
            self.rest = Rest(self.term, self._log.last_index)
        return self.rest is not None

    def _is_even(self) -> bool:
        """Whether every member has everything, and nothing is under way."""
        last_index = self._log.last_index
        return (
            self.commit_index == self._log.persisted_index == last_index
            and self._is_own_voter
            and self._transferee is None
            and not self._read_queue
            and not self._holds_back()
            and all(
                progress.state is ProgressState.REPLICATE
                and progress.match == last_index
                and not progress.is_asking
                for progress in self._progress_list
            )
        )

    def follow_rest(self, leader: NodeId, rest: Rest) -> bool:
        """Let a follower rest because its leader does; False when it is not in step with it."""
        if self.rest is None and self._is_in_step(leader, rest):
            self._commit(rest.index)
            self._elapsed = 0
            self.rest = rest
        return self.leader == leader and self.rest == rest

    def _is_in_step(self, leader: NodeId, rest: Rest) -> bool:
        return (
            self.role is Role.FOLLOWER
            and (self.leader, self.term) == (leader, rest.term)
            and self._verified_index == self._log.last_index == rest.index
            and self._log.persisted_index == rest.index
            and self._fetching is None
            and not self._holds_back()
        )

    def wake(self, silent_ticks: int = 0) -> None:
        """Let time pass again; a follower has not heard of its leader for `silent_ticks`."""
        if self.rest is None:
            return
        self.rest = None
        if self.role is not _LEADER:
            self._elapsed = silent_ticks
            return
        self._elapsed = 0
        self._heartbeat_elapsed = self._settings.heartbeat_ticks
        self._is_quiet = False
        for progress in self._progress_list:
            # All were heard of until now; from now on each has to speak for itself.
            progress.was_active = True
            progress.is_active = False

    def _stirs(self, message: Message) -> bool:
        """Whether a message is more than the late answer to a resting leader's last heartbeat."""
        return not (
            isinstance(message, HeartbeatResponse)
            and self.role is _LEADER
            and message.term == self.term
            and message.index == self._log.last_index
        )

"""Brings the membership of a group in line with the metadata, one safe step at a time.

The metadata says who is to replicate a log. The group's leader gets there by membership changes of
its own: a newcomer first learns the log without a vote; when it has caught up it becomes a voter;
when all that are to vote do, those who are not are taken out or lose their vote, the leader last,
after handing over. Who is taken out goes first: it may be switched off already, and each vote that
others lose before makes its own count for more. But nobody goes without whom those who stay would
have no majority that is alive: such a change could not be committed. Every step is one entry of the
group's log, so a leader that crashes leaves a membership from which the next one goes on. A change
is cancelled by changing the metadata back.

The first members are named by the metadata and by no entry. Once a change is settled, the metadata
names them no more, so a first member that was down all the time begins with nothing, as a newcomer
does. It has to find its membership in the log, also after a change that came to nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.ids import NodeId
from penstock.raft import FollowerStatus, Member, Membership

# A learner that lacks no more than this many entries may vote: it catches up while it does.
_LAG_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """Propose this membership."""

    membership: Membership


@dataclass(frozen=True, slots=True)
class HandOver:
    """Let another voter lead, because this node is to leave or to lose its vote."""

    to: NodeId


@dataclass(frozen=True, slots=True)
class Settled:
    """The membership is as the metadata says."""


Step = Change | HandOver | Settled


@dataclass(frozen=True, slots=True)
class GroupView:
    """What the leader of a group knows."""

    leader: Member
    membership: Membership
    followers: Sequence[FollowerStatus]
    last_index: int
    may_admit: bool = True
    """Whether a newcomer may begin to learn now, or has to wait for its turn."""
    is_membership_told: bool = True
    """Whether a member that begins with nothing hears of its membership."""


def next_step(
    view: GroupView, voters: Sequence[Member], learners: Sequence[Member] = ()
) -> Step | None:
    """Return what to do next; None means to wait, for a turn or for a learner."""
    membership = view.membership
    for member in (*voters, *learners):
        if member not in membership.members:
            return Change(membership.with_learner(member)) if view.may_admit else None
    waiting = [member for member in voters if member in membership.learners]
    for member in waiting:
        if _has_caught_up(member.node, view):
            return Change(membership.with_voter(member))
    if waiting:
        return None
    surplus = [
        member
        for member in membership.members
        if member not in voters and (member in membership.voters or member not in learners)
    ]
    for member in sorted(surplus, key=learners.__contains__):
        if member != view.leader:
            is_kept = member in learners
            left = membership.with_learner(member) if is_kept else membership.without(member.node)
            return Change(left) if _has_living_majority(view, left) else None
    if surplus:
        return HandOver(_best_successor(view, voters))
    return Settled() if view.is_membership_told else Change(membership)


def _has_caught_up(node: NodeId, view: GroupView) -> bool:
    # One that has confirmed nothing may be dead: the leader takes a newcomer for alive at first,
    # and in a short log even nothing is little to lack.
    return any(
        follower.node == node
        and follower.is_active
        and follower.match > 0
        and view.last_index - follower.match <= _LAG_MAX
        for follower in view.followers
    )


def _has_living_majority(view: GroupView, membership: Membership) -> bool:
    alive = {follower.node for follower in view.followers if follower.is_active}
    alive.add(view.leader.node)
    return sum(voter.node in alive for voter in membership.voters) >= membership.quorum


def _best_successor(view: GroupView, voters: Sequence[Member]) -> NodeId:
    matches = {follower.node: follower.match for follower in view.followers}
    return max((voter.node for voter in voters), key=lambda node: matches.get(node, -1))

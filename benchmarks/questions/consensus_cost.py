"""How much CPU does the consensus core of a leader take for one batch, in a group of three?

The core alone: its log is a stand-in that answers at once, and followers acknowledge everything.
"""

import time
from collections.abc import Iterator

from benchmarks.answers import Measurement, Target
from benchmarks.workbench import Workbench
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import (
    AppendResponse,
    EntryKind,
    HardState,
    Incarnation,
    Member,
    Membership,
    RaftNode,
    RaftSettings,
    Recovered,
    Role,
    Snapshot,
    VoteResponse,
)

_BATCHES = 200_000
# Looking a member up in its enum is not the leader's work.
_RECORDS = EntryKind.RECORDS
_PAYLOAD = b"x" * 1024
_MEMBERS = [Member(NodeId(number), Incarnation(number)) for number in (1, 2, 3)]
_OTHERS = _MEMBERS[1:]
# How many are measured between two looks at the clock.
_BUNDLES = 500


class _NoLog:
    """A log that is empty and stays so: the core holds what is not persisted."""

    first_index = EntryIndex(1)
    last_index = EntryIndex(0)

    def term_at(self, index: EntryIndex) -> Term | None:
        return Term(0) if index == 0 else None

    def end_within(self, start: EntryIndex, end: EntryIndex, bytes_max: int) -> EntryIndex:  # noqa: ARG002
        raise AssertionError("nothing is read back")

    def snapshot(self) -> Snapshot | None:
        return None


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Propose, replicate and commit, with several batches to a bundle."""
    for batches in (1, 4, 16):
        cost_us = 1e6 * _cpu_s(batches, bench.count(_BATCHES))
        target = Target("leader_cpu_us_per_batch", most=5.0)
        yield Measurement(f"{batches} to a bundle", {"leader_cpu_us_per_batch": cost_us}, target)


def _cpu_s(batches: int, count: int) -> float:
    """Return the CPU time of one batch; making what followers say is not the leader's work."""
    leader = _elected_leader()
    cpu_s = 0.0
    for _ in range(count // (batches * _BUNDLES)):
        first = leader.last_index + batches
        ends = range(first, first + batches * _BUNDLES, batches)
        answers = [[_acknowledgement(member, leader, end) for member in _OTHERS] for end in ends]
        begin = time.process_time()
        for answer in answers:
            for _ in range(batches):
                leader.propose(_RECORDS, _PAYLOAD)
            _commit(leader, answer)
        cpu_s += time.process_time() - begin
    return cpu_s / (count // (batches * _BUNDLES) * batches * _BUNDLES)


def _elected_leader() -> RaftNode:
    node = RaftNode(
        member=_MEMBERS[0],
        log=_NoLog(),
        recovered=Recovered(
            hard_state=HardState(Term(0), None, EntryIndex(0)),
            memberships=((EntryIndex(0), Membership.of(_MEMBERS)),),
        ),
        settings=RaftSettings(),
        randrange=lambda _: 0,
    )
    node.campaign()
    while node.role is not Role.LEADER:
        effects = node.ready()
        if effects is None:
            _grant(node)
        elif effects.write is not None:
            node.persisted(effects.write.mark)
    _settle(node, [_acknowledgement(member, node, node.last_index) for member in _OTHERS])
    return node


def _grant(node: RaftNode) -> None:
    is_trial = node.role is Role.TRIAL_CANDIDATE
    term = Term(node.term + 1) if is_trial else node.term
    for member in _OTHERS:
        node.step(VoteResponse(member.node, NodeId(1), term, True, is_trial, member.incarnation))


def _commit(node: RaftNode, answers: list[AppendResponse]) -> None:
    """Write, let both followers answer, persist and apply: what a node asks, and nothing else."""
    written = node.ready()
    assert written is not None
    assert written.write is not None
    for answer in answers:
        node.step(answer)
    node.persisted(written.write.mark)
    committed = node.ready()
    assert committed is not None
    node.applied(committed.commit_index)
    assert not committed.has_more


def _settle(node: RaftNode, answers: list[AppendResponse]) -> None:
    """Carry out what a new leader wants, until it wants nothing more."""
    is_done = False
    while not is_done and (effects := node.ready()) is not None:
        if effects.write is not None:
            for answer in answers:
                node.step(answer)
            node.persisted(effects.write.mark)
        if effects.apply_start < effects.apply_end:
            node.applied(EntryIndex(effects.apply_end - 1))
            is_done = not effects.has_more


def _acknowledgement(member: Member, node: RaftNode, index: int) -> AppendResponse:
    return AppendResponse(
        member.node,
        NodeId(1),
        node.term,
        EntryIndex(index),
        False,
        EntryIndex(0),
        Term(0),
        member.incarnation,
    )

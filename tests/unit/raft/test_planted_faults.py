"""Faults planted one at a time, each of which the random histories must notice.

They prove the referee, not the core: a checker that lets one of these pass would also let the same
mistake pass in the core.
"""

from collections.abc import Sequence

import pytest

from penstock.ids import EntryIndex, NodeId
from penstock.raft import (
    Append,
    Entry,
    Incarnation,
    Member,
    Message,
    RaftNode,
    ReadState,
    VoteRequest,
)
from penstock.raft.progress import Progress

from .test_random_group import Storm


class CommitsOldTerms(RaftNode):
    def _may_commit_by_counting(self, index: int) -> bool:
        return True


class RevealsUnsavedVotes(RaftNode):
    def _send(self, message: Message) -> None:
        self._messages.append(message)


class AcknowledgesBeforeSync(RaftNode):
    def _ackable_index(self) -> EntryIndex:
        return self._verified_index

    def _on_append(self, message: Append) -> None:
        super()._on_append(message)
        self._acknowledge()


class CountsItselfBeforeSync(RaftNode):
    def _own_match(self) -> EntryIndex:
        return self._log.last_index


class VotesTwice(RaftNode):
    def _is_vote_free(self, message: VoteRequest) -> bool:
        return True


class VotesForShortLogs(RaftNode):
    def _is_up_to_date(self, last_index: int, last_term: int) -> bool:
        return True


class CutsWhatAnAppendDoesNotMention(RaftNode):
    def _accept(self, entries: Sequence[Entry]) -> None:
        super()._accept(entries)
        if entries and self._log.last_index > entries[-1].index:
            self._log.truncate(max(entries[-1].index, self.commit_index) + 1)


class KeepsConflictingEntries(RaftNode):
    def _first_new(self, entries: Sequence[Entry]) -> int:
        return sum(entry.index <= self._log.last_index for entry in entries)


class CountsFormerSelves(RaftNode):
    def _speaker(self, node: NodeId, incarnation: Incarnation) -> Progress | None:
        progress = self._progress.get(node)
        return progress and super()._speaker(node, progress.incarnation)


class ReadsBeforeOwnCommit(RaftNode):
    def _ask_for_read(self, requester: NodeId, context: int) -> None:
        self._read_queue.add(requester, context, self.commit_index)


class AnswersReadsBelowCommit(RaftNode):
    def _take_reads(self) -> list[ReadState]:
        ready = super()._take_reads()
        return [ReadState(read.context, EntryIndex(max(0, read.index - 1))) for read in ready]


class ChangesMembersTooSoon(RaftNode):
    def _may_change_membership(self) -> bool:
        return True

    def _has_been_admitted(self, learner: Member) -> bool:
        return True


FAULTS = [
    CommitsOldTerms,
    RevealsUnsavedVotes,
    AcknowledgesBeforeSync,
    CountsItselfBeforeSync,
    VotesTwice,
    VotesForShortLogs,
    CutsWhatAnAppendDoesNotMention,
    KeepsConflictingEntries,
    CountsFormerSelves,
    ReadsBeforeOwnCommit,
    AnswersReadsBelowCommit,
    ChangesMembersTooSoon,
]


SEEDS_MAX = 60


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(fault: type[RaftNode]) -> None:
    assert any(is_noticed(fault, seed) for seed in range(SEEDS_MAX))


def is_noticed(fault: type[RaftNode], seed: int) -> bool:
    try:
        Storm(seed, nodes=3, node_class=fault).run(5000)
    except AssertionError:
        return True
    return False

"""Proposals that are entries of the log and not decided yet, in the order of their entries."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.cluster.proposal import Proposal
from penstock.errors import PenstockError
from penstock.ids import EntryIndex

logger = logging.getLogger(__name__)


class InFlight:
    """Those who wait for the entries of a leader."""

    __slots__ = ("_committed", "_proposals", "doubtful_index")

    def __init__(self) -> None:
        self._proposals: deque[Proposal] = deque()
        # Whom to tell when the entries at hand are applied.
        self._committed: list[Callable[[], None]] = []
        self.doubtful_index = EntryIndex(0)
        """Entries up to here may be stored although their proposers heard that the disk is full."""

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._proposals)

    def add(self, proposal: Proposal) -> None:
        """A proposal has become an entry."""
        self._proposals.append(proposal)

    def persisted(self, index: int) -> None:
        """Entries up to `index` are on this leader's disk, which is enough for some."""
        for proposal in self._proposals:
            if proposal.index > index:
                break
            if not proposal.waits_for_commit:
                proposal.succeed(proposal.offset)

    # Entries that are being applied.

    def take(self, index: int) -> Proposal | None:
        """Return the first whose entry is the one at `index`."""
        if self._proposals and self._proposals[0].index == index:
            return self._proposals.popleft()
        return None

    def records_applied(self, proposal: Proposal) -> None:
        """Answer for a batch; whoever wants to hear of it at once does so by `tell_committed`."""
        proposal.succeed(proposal.offset)
        if proposal.on_committed is not None:
            self._committed.append(proposal.on_committed)

    def state_applied(self, proposal: Proposal, result: Any) -> None:
        """Answer for a state, or for all states that share its entry."""
        if not proposal.sharing:
            proposal.succeed(result)
            return
        for each, own in zip(proposal.sharing, result, strict=True):
            each.settle(own)

    def tell_committed(self) -> None:
        """Call all who asked for it; what goes wrong with one of them is its own affair."""
        committed, self._committed = self._committed, []
        for call in committed:
            try:
                call()
            except Exception:
                logger.exception("one who waited for a commit failed")

    # What is not going to be applied, as far as is known.

    def doubt(self, error: PenstockError) -> None:
        """Refuse everybody; the entries may be stored all the same."""
        for proposal in self._proposals:
            refuse(proposal, error)
            self.doubtful_index = proposal.index

    def fail(self, error: PenstockError) -> None:
        """Refuse everybody, and wait for nothing any more."""
        for proposal in self._proposals:
            refuse(proposal, error)
        self._proposals.clear()
        self.doubtful_index = EntryIndex(0)


def refuse(proposal: Proposal, error: PenstockError) -> None:
    """Refuse the one whose entry it is, or all who share it."""
    for each in proposal.sharing or (proposal,):
        each.fail(error)

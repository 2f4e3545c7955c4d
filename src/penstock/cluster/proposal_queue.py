"""Proposals that wait for the disk, in the order in which they become entries.

Records go before states: then one flush takes all of them, as `Flush` demands. There is one
exception. A scheduled batch of an idempotent producer travels as a state, and no later batch of a
producer may become an entry before it: the partition would take the earlier one for the newest, and
call the next one out of order. While such a state waits, batches of producers therefore wait behind
it, among the states; and where not everything can be taken at once, no state is taken while records
are left that came first.
"""

from collections import deque
from collections.abc import Iterable

from penstock.cluster.proposal import Proposal
from penstock.errors import PenstockError

TAKEN_BYTES_MAX = 32 * 1024 * 1024
# States of one entry.
_SHARING_MAX = 1_000
_SHARING_BYTES_MAX = 64 * 1024


class ProposalQueue:
    """What has been proposed and is no entry yet."""

    __slots__ = ("_has_sequenced", "_records", "_states", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._records: list[Proposal] = []
        self._states: list[Proposal] = []
        # Whether a batch of a producer may wait among the states.
        self._has_sequenced = False

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._records or self._states)

    def add_records(self, proposal: Proposal) -> None:
        """Add a batch."""
        assert proposal.batch is not None
        follows = self._has_sequenced and proposal.batch.header.has_producer
        (self._states if follows else self._records).append(proposal)
        self.size_bytes += proposal.size_bytes

    def add_state(self, proposal: Proposal, *, is_sequenced: bool = False) -> None:
        """Add a state; one that is sequenced stands for a batch of a producer."""
        self._has_sequenced = self._has_sequenced or is_sequenced
        self._states.append(proposal)
        self.size_bytes += proposal.size_bytes

    def take(self) -> deque[Proposal]:
        """Take what the next flush shall hold: at least one proposal, if any waits."""
        if self.size_bytes > TAKEN_BYTES_MAX:
            return self._take_some()
        taken = deque(self._records)
        self._records.clear()
        if self._states:
            taken.extend(self._states)
            self._states.clear()
        self._has_sequenced = False
        self.size_bytes = 0
        return taken

    def _take_some(self) -> deque[Proposal]:
        taken: deque[Proposal] = deque()
        taken_bytes = 0
        for queue in (self._records, self._states):
            count = 0
            for proposal in queue:
                if taken_bytes and taken_bytes + proposal.size_bytes > TAKEN_BYTES_MAX:
                    break
                taken.append(proposal)
                taken_bytes += proposal.size_bytes
                count += 1
            del queue[:count]
            if queue and self._has_sequenced:
                break
        self.size_bytes -= taken_bytes
        return taken

    def take_sharing(self) -> deque[Proposal]:
        """Take the states that may share an entry, before anything that came earlier.

        No batch of a producer is among them, and none rests on what is taken.
        """
        taken = deque(proposal for proposal in self._states if proposal.may_share)
        self._states = [proposal for proposal in self._states if not proposal.may_share]
        self.size_bytes -= sum(proposal.size_bytes for proposal in taken)
        return taken

    def fail(self, error: PenstockError) -> None:
        """Refuse everything that waits."""
        for proposal in (*self._records, *self._states):
            proposal.fail(error)
        self._clear()

    def _clear(self) -> None:
        self._records.clear()
        self._states.clear()
        self.size_bytes = 0
        self._has_sequenced = False


def sharing_an_entry(taken: Iterable[Proposal]) -> list[Proposal]:
    """Return the first of these proposals, and those after it that may share its entry."""
    found: list[Proposal] = []
    size_bytes = 0
    for proposal in taken:
        size_bytes += len(proposal.payload)
        is_full = len(found) == _SHARING_MAX or size_bytes > _SHARING_BYTES_MAX
        if found and (is_full or not proposal.may_share):
            break
        found.append(proposal)
    return found

"""Whether a partition takes writes, and whether it is read, while its topic is being switched.

What fences are, and what may crash around them, is told in `resharding`.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.topic_machine import Fenced, TopicMachine, encode_fenced
from penstock.errors import TopicFenced


def is_unknown(fence: int) -> bool:
    """A fence of which nobody can tell that it was lifted is in force."""
    return fence > 0


class KnownFences(NamedTuple):
    """What a node's metadata says of a fence: whether it still closes writes, and reads."""

    closes_writes: Callable[[int], bool] = is_unknown
    closes_reads: Callable[[int], bool] = is_unknown


class PartitionFence:
    """The fence of one partition."""

    def __init__(self, log: ReplicatedLog, machine: TopicMachine, known: KnownFences) -> None:
        self._log = log
        self._machine = machine
        self._known = known
        # The newest fence that was proposed here, from before its entry is written.
        self._raised = 0
        # The newest fences that are known to close nothing; that never changes again.
        self._lifted = self._read_lifted = 0

    @property
    def is_closed(self) -> bool:
        """True while writes are turned away."""
        fence = max(self._raised, self._machine.fence)
        if fence > self._lifted and not self._known.closes_writes(fence):
            self._lifted = fence
        return fence > self._lifted

    def check(self) -> None:
        """Raise `TopicFenced` when writes are turned away."""
        # Most partitions never have a fence, and every publish asks.
        if (self._raised or self._machine.fence) and self.is_closed:
            raise TopicFenced(
                f"{self._log.name} takes no writes: it is about to get another number of"
                " partitions, or had another one before"
            )

    def check_reads(self) -> None:
        """Raise `TopicFenced` while readers may take the topic for its copy."""
        fence = self._machine.read_fence
        if fence > self._read_lifted:
            if self._known.closes_reads(fence):
                raise TopicFenced(f"{self._log.name} is about to get another name")
            self._read_lifted = fence

    async def close(self, fence: int, *, closes_reads: bool = False) -> None:
        """Take no writes from now on; on return none can follow, whoever leads next.

        With `closes_reads`, the same for reads.
        """
        self._log.check_serving()
        reached = self._machine.read_fence if closes_reads else self._machine.fence
        if reached < fence:
            # Proposals become entries in their order, so that nothing slips in behind the fence.
            # The number stays when the proposal fails: the entry may be committed all the same.
            self._raised = max(self._raised, fence)
            await self._log.propose_state(encode_fenced(Fenced(fence, closes_reads)))

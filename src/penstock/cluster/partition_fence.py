"""Whether a partition takes writes: not while a fence of its topic is in force.

What fences are, and what may crash around them, is told in `resharding`.
"""

from collections.abc import Callable

from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.topic_machine import TopicMachine, encode_fenced
from penstock.errors import TopicFenced


def is_unknown(fence: int) -> bool:
    """A fence of which nobody can tell that it was lifted is in force."""
    return fence > 0


class PartitionFence:
    """The fence of one partition; `is_in_force` says what the metadata knows of a fence."""

    def __init__(
        self, log: ReplicatedLog, machine: TopicMachine, is_in_force: Callable[[int], bool]
    ) -> None:
        self._log = log
        self._machine = machine
        self._is_in_force = is_in_force
        # The newest fence that was proposed here, from before its entry is written.
        self._raised = 0
        # The newest fence that is known to be lifted; that never changes again.
        self._lifted = 0

    @property
    def is_closed(self) -> bool:
        """True while writes are turned away."""
        fence = max(self._raised, self._machine.fence)
        if fence > self._lifted and not self._is_in_force(fence):
            self._lifted = fence
        return fence > self._lifted

    def check(self) -> None:
        """Raise `TopicFenced` when writes are turned away."""
        if self.is_closed:
            raise TopicFenced(
                f"{self._log.name} takes no writes: it is about to get another number of"
                " partitions, or had another one before"
            )

    async def close(self, fence: int) -> None:
        """Take no writes from now on; on return none can follow, whoever leads next."""
        self._log.check_serving()
        if self._machine.fence < fence:
            # Proposals become entries in their order, so that nothing slips in behind the fence.
            # The number stays when the proposal fails: the entry may be committed all the same.
            self._raised = max(self._raised, fence)
            await self._log.propose_state(encode_fenced(fence))

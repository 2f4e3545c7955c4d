"""How one member of an incremental group is led from what it owns to what it should own.

A member is *settled* when it has the group's target epoch, owns its whole target and nothing is
left to revoke. Otherwise each heartbeat may take it one step (KIP-848, "Member reconciliation"):

- It must give something up: it keeps its epoch, is told the smaller assignment, and the rest is
  `revoking` until a heartbeat shows that the member no longer owns it.
- Nothing is left to give up: it moves to the target epoch and gets those partitions of its target
  that nobody holds, now and whenever more of them become free.

A partition that is assigned or being revoked has a holder, and only a partition without a holder
is handed out. That is why no partition has two owners.
"""

from collections.abc import Callable
from uuid import UUID

import msgspec

from penstock.groups.assignment import Assignment, difference, intersection, overlaps, union
from penstock.groups.events import ConsumerRow

HolderOf = Callable[[UUID, int], str | None]


def is_settled(member: ConsumerRow, target_epoch: int) -> bool:
    """Whether the member has reached the group's target."""
    return member.epoch == target_epoch and not member.revoking and member.assigned == member.target


def is_waiting(member: ConsumerRow) -> bool:
    """Whether the member has done its part and others hold what it should get."""
    return not member.revoking and member.assigned != member.target


def reconciled(
    member: ConsumerRow, *, target_epoch: int, owned: Assignment | None, holder_of: HolderOf
) -> ConsumerRow:
    """Take the next step; `owned` is what the member reports, None when it reports nothing."""
    if is_settled(member, target_epoch) or _owns(owned, member.revoking):
        return member
    kept = intersection(member.assigned, member.target)
    leaving = difference(member.assigned, member.target)
    if _owns(owned, leaving):
        return msgspec.structs.replace(member, assigned=dict(kept), revoking=dict(leaving))
    free = _free(difference(member.target, kept), member.member_id, holder_of)
    return msgspec.structs.replace(
        member,
        epoch=target_epoch,
        previous_epoch=member.epoch if member.epoch != target_epoch else member.previous_epoch,
        assigned=dict(union(kept, free)),
        revoking={},
    )


def _owns(owned: Assignment | None, partitions: Assignment) -> bool:
    """Whether the member must be taken to own some of the partitions still."""
    return bool(partitions) and (owned is None or overlaps(owned, partitions))


def _free(wanted: Assignment, member_id: str, holder_of: HolderOf) -> Assignment:
    # What the member itself was about to give up is not in other hands.
    free = {
        topic: frozenset(p for p in partitions if holder_of(topic, p) in (None, member_id))
        for topic, partitions in wanted.items()
    }
    return {topic: partitions for topic, partitions in free.items() if partitions}

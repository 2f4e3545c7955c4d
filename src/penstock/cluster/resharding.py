"""How a topic comes to another number of partitions under its own name.

A job copies the topic into another one (`spark/resharding.py`). What is here is the end of that:
writers are turned away by a *fence*, the rest is copied, and both topics change their names in one
command of the metadata. Topic ids, directories and groups of replicas stay with the records;
settings and the names of queue groups stay with the name.

While a reshard is under way, retention and compaction leave the topic and its copy alone
(`ReplicaSet`): a record that went from one of them would be missing in the comparison. What
somebody deletes is deleted. Both go on with the switch, or when the reshard is cancelled.

A fence has a number, given by the metadata and never given twice. It is raised in two places:

1. `FenceTopic` notes the number in the metadata. Nothing is turned away yet.
2. Each partition's leader proposes the number to the partition's own log (`Fenced`), and takes no
   writes from then on. When that entry is committed, the leader answers with the end of its log.
   No record can follow the entry: the leader that proposed it refuses them, and every later one has
   applied it before it serves, however little it knows of the metadata.

Right before the switch the same entry closes reads, too: a node that has not heard of the switch
would otherwise serve the former topic to readers who have, by the same name, at positions of the
copy. Reads are closed until the node knows that the topic has another name, or the fence is lifted.

A fence is lifted in the metadata alone, by `LiftFence`. A partition's leader takes writes again
when its metadata is as new as the fence and names another one, or none. `SwitchTopics` holds only
while the fence that the job has seen confirmed is in force. Both are entries of one log: a fence
that was lifted cannot be switched under, and after a switch it is never lifted. So no write that
was acknowledged lies between the end that was copied and the switch, whatever the clocks say.

What may crash, and what is found afterwards:

- The job, before `BeginReshard`: an empty topic, which the next run finds again by its name.
- The job, while it copies: the metadata names the reshard and its copy. The same job goes on, and
  `CancelReshard` removes both. Writers notice nothing.
- The job, behind the fence: nobody renews it. The leader of the metadata lifts it when a lease's
  time has passed without a renewal on its own steady clock; a new leader begins to count anew. A
  renewal that was committed meanwhile wins, because the lifting names the last one it saw. A job
  that comes back before that lifts the fence itself, as reads may be closed behind it and it has to
  read. Either way there may be new records, and it copies again behind another fence.
- A partition's leader, before its entry is committed: nobody has heard of an end. Asked again, the
  next leader proposes the number, or finds it committed and answers.
- A partition's leader, afterwards: see above; a leader whose metadata is older than the fence
  refuses writes until it has caught up.
- The leader of the metadata, at any time: commands are sent again. The number of a fence that is
  there is given again, a second switch of the same reshard finds it done, and so does a second
  cancellation.
- The job, after the switch: the former topic says that it was switched, and the next run sees that.

Clients know topics by name or by id. The copy keeps its id, and the former topic is shown under
another one: a client that asks by the id it learnt under the name finds no such topic, looks the
name up again, and has not read the former topic with positions of the copy.

A node learns of the switch when it applies the command, and all that it knows by the topic's name
changes in that same step: partitions (`ReplicaSet.follow_names`), settings, members and offsets of
consumer groups (`groups/inheritance.py`). Until then it serves the former topic under the name,
whose partitions refuse writes. The former topic keeps its fence for ever.
"""

import uuid

import msgspec

from penstock.errors import Conflict


class Resharding(msgspec.Struct, frozen=True):
    """What the metadata knows of the copy that is to take a topic's place, or has taken it."""

    reshard_id: uuid.UUID
    target: uuid.UUID
    """The topic that is the copy."""
    fence: int = 0
    """The fence that is raised or in force; 0 for none."""
    renewals: int = 0
    """Changes whenever the job says that it still needs its fence."""
    is_switched: bool = False


class BeginReshard(msgspec.Struct, frozen=True, tag="begin_reshard"):
    """Name the copy that is to take the place of a topic."""

    topic_id: uuid.UUID
    reshard_id: uuid.UUID
    target: uuid.UUID


class FenceTopic(msgspec.Struct, frozen=True, tag="fence_topic"):
    """Give a topic's fence a number, or renew the fence that is there."""

    topic_id: uuid.UUID
    reshard_id: uuid.UUID


class LiftFence(msgspec.Struct, frozen=True, tag="lift_fence"):
    """Let a topic be written to again, unless the fence is another one by now.

    With `renewals`, also unless it was renewed since.
    """

    topic_id: uuid.UUID
    fence: int
    renewals: int | None = None


class SwitchTopics(msgspec.Struct, frozen=True, tag="switch_topics"):
    """Give a topic's name to its copy, and another one to the topic.

    `positions` says where consumer groups go on in the copy, partition by partition.
    """

    topic_id: uuid.UUID
    reshard_id: uuid.UUID
    fence: int
    former_name: str
    positions: dict[str, tuple[int, ...]]


class CancelReshard(msgspec.Struct, frozen=True, tag="cancel_reshard"):
    """Forget a reshard and delete its copy; the topic is as it was."""

    topic_id: uuid.UUID
    reshard_id: uuid.UUID


def begun(known: Resharding | None, command: BeginReshard) -> Resharding:
    """Return the reshard of a topic after the command, or raise `Conflict`."""
    if known is None:
        return Resharding(command.reshard_id, command.target)
    if (known.reshard_id, known.target) != (command.reshard_id, command.target):
        raise Conflict(
            f"the topic is being resharded already, as {known.reshard_id}; cancel that first"
        )
    return known


def own(known: Resharding | None, reshard_id: uuid.UUID) -> Resharding:
    """Return the reshard of a topic when it is the one that is meant, or raise `Conflict`."""
    if known is None or known.reshard_id != reshard_id:
        there = "none" if known is None else str(known.reshard_id)
        raise Conflict(f"reshard {reshard_id} of the topic was cancelled or replaced by {there}")
    return known


def fenced(known: Resharding, next_fence: int) -> Resharding:
    """Return the reshard with a fence, its own or the next one."""
    if known.is_switched:
        return known
    fence = known.fence or next_fence
    return msgspec.structs.replace(known, fence=fence, renewals=known.renewals + 1)


def lifted(known: Resharding | None, command: LiftFence) -> Resharding | None:
    """Return the reshard without the fence; unchanged when another is meant."""
    if known is None or known.is_switched or known.fence != command.fence:
        return known
    if command.renewals not in (None, known.renewals):
        return known
    return msgspec.structs.replace(known, fence=0)


def check_fence(known: Resharding, fence: int) -> None:
    """Raise `Conflict` when a fence is not the one that is in force."""
    if not fence or known.fence != fence:
        there = f"fence {known.fence} is" if known.fence else "none is"
        raise Conflict(
            f"fence {fence} was lifted, {there} in force: records may have come since;"
            " copy them under a new fence"
        )

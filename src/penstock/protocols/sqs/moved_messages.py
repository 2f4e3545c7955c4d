"""How many messages a move task has moved, by the journal of the queue that they come from.

The node that carries a task out writes its progress down from time to time only, as that is a
change of the cluster's metadata. One that takes up the task of a node that died counts what it has
acked: a message counts when it is deleted from its source, and once. What was sent and not deleted
yet comes back and counts then. So the number is that of messages that have really moved; it is
lower where retention has removed the journal of the time since the progress was written down.
"""

from hashlib import sha256

from pyroaring import BitMap64

from penstock.broker import JournalEntry, JournalKind, Topic
from penstock.errors import OffsetOutOfRange
from penstock.ids import TopicPartition
from penstock.protocols.sqs.move_tasks import MoveTask
from penstock.protocols.sqs.queues import GROUP
from penstock.protocols.sqs.view import SqsView

# The clocks of nodes may differ by so much.
_CLOCKS_MS = 60_000


def mover_of(task: MoveTask) -> str:
    """Return the name under which messages of a task are received; a handle may be too long."""
    return f"move-{sha256(task.handle.encode()).hexdigest()[:32]}"


async def count_moved(view: SqsView, source: Topic, task: MoveTask) -> int:
    """Return how many messages a task has moved, as far as the journal reaches back."""
    moved = 0
    for number in range(source.partitions):
        moved += await _count(view, TopicPartition(source.name, number), task)
    return moved


async def _count(view: SqsView, place: TopicPartition, task: MoveTask) -> int:
    tally = _Tally(mover_of(task))
    since_ms = max(0, task.asked.started_ms - _CLOCKS_MS)
    page = await view.queues.journal(place, since_ms=since_ms)
    while True:
        for entry in page.entries:
            tally.add(entry)
        if page.next_index >= page.end:
            return len(tally.moved)
        try:
            page = await view.queues.journal(place, index=page.next_index)
        except OffsetOutOfRange:
            # Retention has removed the next page meanwhile.
            return len(tally.moved)


class _Tally:
    """What one consumer has acked in one partition."""

    def __init__(self, consumer: str) -> None:
        self._consumer = consumer
        self._deliveries: set[int] = set()
        self.moved = BitMap64()

    def add(self, entry: JournalEntry) -> None:
        if entry.group != GROUP:
            return
        match entry.kind:
            case JournalKind.LEASED if entry.consumer == self._consumer:
                self._deliveries.update(delivery for delivery, _, _ in entry.runs)
            case JournalKind.EXPIRED:
                # An ack that came later was refused.
                self._deliveries.difference_update(entry.deliveries)
            case JournalKind.ACKED:
                for delivery, start, end in entry.runs:
                    if delivery in self._deliveries:
                        self.moved.add_range(start, end)
            case _:
                pass

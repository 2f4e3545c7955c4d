"""What becomes of consumer groups when a topic's copy takes its place and its name.

Offsets of the former topic mean nothing in the copy, and members hold such offsets in their memory.
Every topic has an *era*: 0, or a number that rises whenever another topic comes to the name. What
groups keep is marked with an era, so that no moment exists in which an offset of one topic is taken
for an offset of the other:

- A committed position is marked with the era of its topic, as the coordinator knows it. One of
  another era does not count. In its place stands the position that the switch gave to the group, or
  the start when the group was not there to be given any: nothing is skipped, some is read again.
- A group is marked with the newest era that its coordinator knew when it last had no members. When
  a topic that its members may read is of a newer era, all of them are expelled: they join again,
  and look for their positions anew. That happens as the coordinator learns of the switch, so what
  they commit afterwards under their former membership is refused; and again when another node
  becomes coordinator that knows more of the topics than the one before.

A coordinator that learns of the switch late marks what is committed there with the former era: the
positions are lost and read again.

A topic that is deleted takes its positions along, by an event of the coordinator that sees it go.
The next coordinator may know only the topic that was created under the name since. So a position
also bears the id of its topic, and does not count for another one of the same era.
"""

from collections.abc import Iterable, Mapping

from penstock.groups.events import OffsetRow
from penstock.groups.subscription import Catalog, TopicInfo
from penstock.ids import TopicPartition

Offsets = Mapping[TopicPartition, OffsetRow]


def era_of(topic: str, catalog: Catalog | None) -> int:
    """The era with which a position is marked."""
    info = catalog.topics.get(topic) if catalog else None
    return info.era if info else 0


def id_of(topic: str, catalog: Catalog | None) -> bytes:
    """The id with which a position is marked."""
    info = catalog.topics.get(topic) if catalog else None
    return info.topic_id.bytes if info else b""


def valid_offsets(
    group_id: str, offsets: Offsets, catalog: Catalog | None
) -> dict[TopicPartition, OffsetRow]:
    """The positions of a group as they count under the topics that there are."""
    valid = {key: row for key, row in offsets.items() if not _is_outlived(row, catalog)}
    for topic in _switched(offsets, catalog):
        assert catalog is not None
        info = catalog.topics[topic]
        rows = {key: row for key, row in offsets.items() if key.topic == topic}
        for key, row in rows.items():
            if row.era != info.era:
                valid.pop(key, None)
        # A group that has committed here, in whatever era, has a position in all partitions.
        commit_ms = max(row.commit_ms for row in rows.values())
        for row in _inherited(group_id, topic, info, commit_ms):
            valid.setdefault(TopicPartition(topic, row.partition), row)
    return valid


def _is_outlived(row: OffsetRow, catalog: Catalog | None) -> bool:
    """Whether another topic was created under the name since."""
    info = catalog.topics.get(row.topic) if catalog and row.topic_id else None
    return info is not None and row.era == info.era and row.topic_id != info.topic_id.bytes


def _switched(offsets: Offsets, catalog: Catalog | None) -> Iterable[str]:
    """Topics among the offsets that had a predecessor."""
    if catalog is None or not catalog.era:
        return ()
    topics = {key.topic for key in offsets}
    return [name for name in sorted(topics & catalog.topics.keys()) if catalog.topics[name].era]


def _inherited(group_id: str, topic: str, info: TopicInfo, commit_ms: int) -> Iterable[OffsetRow]:
    given = info.positions.get(group_id, ())
    for partition in range(info.partitions):
        offset = given[partition] if partition < len(given) else 0
        yield OffsetRow(topic, partition, offset, -1, "", commit_ms, info.era)

"""How far consumer groups are behind, by the offsets that they have committed.

Commits leave no journal: it is known where a group stands now, and not where it stood.
"""

from collections.abc import Mapping

from penstock.client import Admin, Connection, Groups, OffsetRange
from penstock.ids import TopicPartition
from penstock.insight import Cell, Table
from penstock.spark.insight.scope import Scope

_COLUMNS = ("topic", "group", "state", "partitions", "without a commit", "lag", "largest lag")


def consumer_groups_table(scope: Scope) -> Table:
    """Return the lag of every group that has committed an offset of one of the topics."""
    admin = Admin(Connection(scope.bootstrap))
    groups = Groups(admin)
    held = admin.offset_ranges(scope.partitions())
    rows = [
        _row(topic, (listed.name, listed.state), committed, held)
        for listed in groups.list()
        for committed in [groups.committed(listed.name)]
        for topic in scope.topics
        if any(place.topic == topic for place in committed)
    ]
    return Table("consumer_groups", "Consumer groups, now", _COLUMNS, sorted(rows, key=str))


def _row(
    topic: str,
    group: tuple[str, str],
    committed: Mapping[TopicPartition, int],
    held: Mapping[TopicPartition, OffsetRange],
) -> list[Cell]:
    places = [place for place in held if place.topic == topic]
    lags = [max(held[each].end - committed[each], 0) for each in places if each in committed]
    return [
        topic, *group, len(places), len(places) - len(lags), sum(lags), max(lags, default=0),
    ]  # fmt: skip

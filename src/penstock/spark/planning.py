"""Where to begin, where to end, and who reads what: plain functions over offsets.

`Offsets` map partitions to the next offset to read. In checkpoints they are JSON of the form that
Spark's Kafka source writes: topics, partitions as text, offsets. Beside the topics stand their ids,
under a word that no topic can have as its name: an offset means nothing in another topic that has
the name since.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from penstock.errors import InvalidRequest, OffsetOutOfRange
from penstock.ids import TopicPartition
from penstock.spark.brokers import EARLIEST, LATEST
from penstock.spark.catalog import Catalog
from penstock.spark.options import Bound, SourceOptions
from penstock.spark.ranges import RecordRange

Offsets: TypeAlias = dict[TopicPartition, int]
TopicIds: TypeAlias = dict[str, str]
_IDS = "#ids"


def offsets_to_json(
    offsets: Mapping[TopicPartition, int], ids: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return offsets as a checkpoint holds them, always in the same order."""
    tree: dict[str, Any] = {}
    for place in sorted(offsets):
        tree.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    known = {topic: ids[topic] for topic in tree if topic in ids} if ids else {}
    return {**tree, _IDS: known} if known else tree


def offsets_from_json(tree: Any) -> Offsets:
    """Read offsets from a checkpoint, or say that it is not one of this source."""
    try:
        found = {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in tree.items()
            if topic != _IDS
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        found = {TopicPartition("", -1): None}
    if any(type(offset) is not int or offset < 0 for offset in found.values()):
        raise InvalidRequest(
            f"the checkpoint holds {tree!r}, which are not offsets of this source"
            ' such as {"orders": {"0": 23}}; was it written by another query?'
        )
    return found


def ids_from_json(tree: Mapping[str, Any]) -> TopicIds:
    """Read the ids of topics from a checkpoint; those that an earlier version wrote have none."""
    return dict(tree.get(_IDS, {}))


def created_anew(known: Mapping[str, str], ids: Mapping[str, str]) -> set[str]:
    """Return the topics that have another id than the one which is known."""
    return {topic for topic, known_id in known.items() if ids.get(topic, known_id) != known_id}


def resolve_start(options: SourceOptions, catalog: Catalog, default: int) -> Offsets:
    """Return the first offset to read of each partition that is wanted."""
    bound = options.start or Bound(offset=default)
    partitions = catalog.partitions()
    if bound.has_times:
        absent = "latest" if options.late_start_is_latest else "error"
        return _by_time(bound, catalog, partitions, absent)
    return _by_offset(bound, catalog, partitions)


def resolve_end(options: SourceOptions, catalog: Catalog, start: Offsets) -> Offsets:
    """Return the offset after the last one to read of each partition, never before its start."""
    bound = options.end or Bound(offset=LATEST)
    if bound.has_times:
        end = _by_time(bound, catalog, list(start), "latest")
    else:
        end = _by_offset(bound, catalog, list(start))
    return {place: max(end[place], start[place]) for place in start}


def check_held(options: SourceOptions, catalog: Catalog, offsets: Offsets) -> Offsets:
    """Return offsets inside of what is held; outside, they are moved or tell of a loss."""
    earliest = catalog.earliest(offsets)
    latest = catalog.latest(offsets)
    inside = {
        place: min(max(offset, earliest[place]), latest[place]) for place, offset in offsets.items()
    }
    for place, offset in offsets.items():
        if offset != inside[place] and options.fetch.fails_on_data_loss:
            raise OffsetOutOfRange(
                f"topic {place.topic} partition {place.partition} offset {offset}: the partition"
                f" holds offsets {earliest[place]} up to {latest[place]};"
                " failOnDataLoss=false reads what is left"
            )
    return inside


def _by_offset(bound: Bound, catalog: Catalog, partitions: list[TopicPartition]) -> Offsets:
    wanted = bound.offsets
    if wanted is None:
        wanted = dict.fromkeys(partitions, EARLIEST if bound.offset == EARLIEST else LATEST)
    _check_same(wanted, partitions)
    earliest = catalog.earliest(place for place in partitions if wanted[place] == EARLIEST)
    latest = catalog.latest(place for place in partitions if wanted[place] == LATEST)
    return {place: {**wanted, **earliest, **latest}[place] for place in partitions}


def _by_time(
    bound: Bound, catalog: Catalog, partitions: list[TopicPartition], absent: str
) -> Offsets:
    times = bound.times_ms
    if times is None:
        assert bound.time_ms is not None
        times = dict.fromkeys(partitions, bound.time_ms)
    _check_same(times, partitions)
    found = catalog.at(times)
    latest = catalog.latest(place for place, offset in found.items() if offset is None)
    for place in latest if absent == "error" else ():
        raise OffsetOutOfRange(
            f"topic {place.topic} partition {place.partition} has no record at or after"
            f" {times[place]} ms; startingOffsetsByTimestampStrategy=latest begins at its end"
        )
    return {place: latest[place] if offset is None else offset for place, offset in found.items()}


def _check_same(given: Mapping[TopicPartition, int], wanted: Collection[TopicPartition]) -> None:
    if given.keys() != set(wanted):
        raise InvalidRequest(
            f"offsets are given for {_listed(given)}, but what is to be read is {_listed(wanted)}"
        )


def _listed(places: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(places))) or "nothing"


def make_ranges(start: Mapping[TopicPartition, int], end: Offsets) -> list[RecordRange]:
    """Return what lies between two sets of offsets, without empty ranges."""
    return [
        RecordRange(place.topic, place.partition, start[place], end[place])
        for place in sorted(end)
        if start[place] < end[place]
    ]


def split_ranges(
    ranges: Iterable[RecordRange],
    *,
    partitions_min: int | None = None,
    records_max: int | None = None,
) -> list[RecordRange]:
    """Cut ranges so that there are at least so many, each of at most so many offsets.

    Larger ranges are cut into more pieces, as evenly as whole offsets allow.
    """
    ranges = list(ranges)
    if records_max is not None:
        ranges = [piece for each in ranges for piece in _cut(each, -(-len(each) // records_max))]
    total = sum(map(len, ranges))
    if partitions_min is None or len(ranges) >= partitions_min or total == 0:
        return ranges
    return [
        piece for each in ranges for piece in _cut(each, -(-len(each) * partitions_min // total))
    ]


def _cut(records: RecordRange, pieces: int) -> list[RecordRange]:
    pieces = max(1, min(pieces, len(records)))
    edges = [records.start + len(records) * i // pieces for i in range(pieces + 1)]
    return [
        RecordRange(records.topic, records.partition, edges[i], edges[i + 1]) for i in range(pieces)
    ]


def limit_offsets(start: Mapping[TopicPartition, int], end: Offsets, offsets_max: int) -> Offsets:
    """Take at most so many offsets, from each partition in proportion to what it has.

    A partition that has something gives at least one offset while there is room, so that none
    waits forever behind a large one.
    """
    waiting = {place: max(end[place] - start[place], 0) for place in sorted(end)}
    total = sum(waiting.values())
    if total <= offsets_max:
        return end
    limited = dict(end)
    left = offsets_max
    for place in sorted(filter(waiting.get, waiting), key=waiting.__getitem__):
        share = min(waiting[place], left, max(1, offsets_max * waiting[place] // total))
        limited[place] = start[place] + share
        left -= share
    return limited

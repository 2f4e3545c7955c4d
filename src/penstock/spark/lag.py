"""How far a streaming query is behind, from what Spark tells of its progress."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.ids import TopicPartition
from penstock.spark.planning import offsets_from_json


def lag_of(progress: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return how many offsets of each partition a query had still to read after a micro-batch.

    `progress` is a query's `lastProgress`, or one of `recentProgress`, as a mapping. Sources of
    other kinds, such as files, are passed over.
    """
    lags: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        latest, end = _tree(source["latestOffset"]), _tree(source["endOffset"])
        if not (_has_partitions(latest) and _has_partitions(end)):
            continue
        latest, end = offsets_from_json(latest), offsets_from_json(end)
        for place in latest.keys() & end.keys():
            lags[place] = max(latest[place] - end[place], 0)
    return lags


def _tree(told: Any) -> Any:
    # Spark gives JSON as text, or as the value itself when that is a JSON object.
    return (json.loads(told) if isinstance(told, str) else told) or {}


def _has_partitions(tree: Any) -> bool:
    return isinstance(tree, dict) and all(isinstance(each, dict) for each in tree.values())

"""How far a streaming query is behind, from what Spark tells of its progress."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.ids import TopicPartition
from penstock.spark.planning import offsets_from_json


def lag_of(progress: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return how many offsets of each partition a query had still to read after a micro-batch.

    `progress` is a query's `lastProgress`, or one of `recentProgress`, as a mapping.
    """
    lags: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        for place in latest.keys() & end.keys():
            lags[place] = max(latest[place] - end[place], 0)
    return lags


def _offsets(told: Any) -> dict[TopicPartition, int]:
    # Spark gives JSON as text, or as the value itself when that is a JSON object.
    tree = json.loads(told) if isinstance(told, str) else told
    return offsets_from_json(tree or {})

"""Spark jobs speak to a cluster through this room.

It keeps the data source `format("penstock")`, batch and streaming, with the options and the schema
of Spark's Kafka source, and below it what other jobs build on: ranges of offsets that are planned
on the driver, and `read_range`, which fetches one range from the partition's leader and yields
Arrow record batches. Everything that passes, such as a broker that is down, is retried here,
because one exception ends a query. Each record of a range comes once and in order; where a stream
goes on after a restart is Spark's to keep, in its checkpoint. Server rooms are never imported.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.archive_compaction import Compacted, compact_archive
    from penstock.spark.archive_service import (
        ArchiveService,
        ArchiveServiceSettings,
        archive_statuses,
    )
    from penstock.spark.archive_status import ArchivedPartitionStatus, ArchiveStatus
    from penstock.spark.archive_table import ArchivedTopicId, ArchiveLocation, ArchiveTable
    from penstock.spark.archive_verification import Verdict, verify_archive
    from penstock.spark.failures import SPARK_FAILURES, is_gone, told_error
    from penstock.spark.fetching import read_range
    from penstock.spark.given_options import Option
    from penstock.spark.insight import (
        Scope,
        deliveries_report,
        hot_keys_report,
        latency_report,
        traffic_report,
    )
    from penstock.spark.lag import lag_of
    from penstock.spark.local_reading import read_here
    from penstock.spark.options import OPTIONS
    from penstock.spark.pipelines import (
        ClusterAddress,
        PipelineProgress,
        check_pipeline,
        run_pipeline,
    )
    from penstock.spark.planning import split_ranges
    from penstock.spark.ranges import FetchSettings, RecordRange
    from penstock.spark.replaying import Replay, run_replay
    from penstock.spark.resharding import Reshard, ReshardPlan, ReshardSettings, ReshardVerdict
    from penstock.spark.schema import COLUMNS, COLUMNS_WITH_HEADERS, arrow_schema
    from penstock.spark.session import QUIET_SETTINGS, open_session
    from penstock.spark.sink_options import SINK_OPTIONS
    from penstock.spark.source import PenstockSource
    from penstock.spark.switching import Switch, SwitchNote, SwitchOutcome, SwitchSettings

_HOMES = {
    "ArchiveLocation": "archive_table",
    "ArchiveService": "archive_service",
    "ArchiveServiceSettings": "archive_service",
    "ArchiveStatus": "archive_status",
    "ArchiveTable": "archive_table",
    "ArchivedPartitionStatus": "archive_status",
    "ArchivedTopicId": "archive_table",
    "Compacted": "archive_compaction",
    "Verdict": "archive_verification",
    "archive_statuses": "archive_service",
    "compact_archive": "archive_compaction",
    "verify_archive": "archive_verification",
    "COLUMNS": "schema",
    "COLUMNS_WITH_HEADERS": "schema",
    "ClusterAddress": "pipelines",
    "FetchSettings": "ranges",
    "OPTIONS": "options",
    "Option": "given_options",
    "PenstockSource": "source",
    "PipelineProgress": "pipelines",
    "QUIET_SETTINGS": "session",
    "RecordRange": "ranges",
    "Replay": "replaying",
    "Reshard": "resharding",
    "ReshardPlan": "resharding",
    "ReshardSettings": "resharding",
    "ReshardVerdict": "resharding",
    "SINK_OPTIONS": "sink_options",
    "SPARK_FAILURES": "failures",
    "Scope": "insight",
    "Switch": "switching",
    "SwitchNote": "switching",
    "SwitchOutcome": "switching",
    "SwitchSettings": "switching",
    "arrow_schema": "schema",
    "check_pipeline": "pipelines",
    "deliveries_report": "insight",
    "hot_keys_report": "insight",
    "is_gone": "failures",
    "lag_of": "lag",
    "latency_report": "insight",
    "open_session": "session",
    "read_here": "local_reading",
    "read_range": "fetching",
    "run_pipeline": "pipelines",
    "run_replay": "replaying",
    "split_ranges": "planning",
    "told_error": "failures",
    "traffic_report": "insight",
}

__all__ = [
    "COLUMNS",
    "COLUMNS_WITH_HEADERS",
    "OPTIONS",
    "QUIET_SETTINGS",
    "SINK_OPTIONS",
    "SPARK_FAILURES",
    "ArchiveLocation",
    "ArchiveService",
    "ArchiveServiceSettings",
    "ArchiveStatus",
    "ArchiveTable",
    "ArchivedPartitionStatus",
    "ArchivedTopicId",
    "ClusterAddress",
    "Compacted",
    "FetchSettings",
    "Option",
    "PenstockSource",
    "PipelineProgress",
    "RecordRange",
    "Replay",
    "Reshard",
    "ReshardPlan",
    "ReshardSettings",
    "ReshardVerdict",
    "Scope",
    "Switch",
    "SwitchNote",
    "SwitchOutcome",
    "SwitchSettings",
    "Verdict",
    "archive_statuses",
    "arrow_schema",
    "check_pipeline",
    "compact_archive",
    "deliveries_report",
    "hot_keys_report",
    "is_gone",
    "lag_of",
    "latency_report",
    "open_session",
    "read_here",
    "read_range",
    "run_pipeline",
    "run_replay",
    "split_ranges",
    "told_error",
    "traffic_report",
    "verify_archive",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for: each of Spark's Python processes needs another part of this room."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)

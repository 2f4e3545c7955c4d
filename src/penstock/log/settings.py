"""What a topic may choose about its log."""

from dataclasses import dataclass

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Limits of a partition's log; -1 means no limit."""

    segment_bytes: int = 256 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    # Rows of the active segment are kept in memory, 56 bytes each.
    segment_rows_max: int = 1_000_000
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    deletes: bool = True
    compacts: bool = False
    sync_records: bool = True
    compaction_lag_ms: int = 0
    tombstone_retention_ms: int = DAY_MS
    dirty_ratio_min: float = 0.5
    # Where records are copied to before retention or compaction may remove them; empty: nowhere.
    archive: str = ""

"""Log storage: segments, indexes, crash recovery, retention, compaction.

The room keeps the entries of one partition in files. It promises that an entry whose flush has run
is found again after a crash, under the same index, term and offset; that a torn tail is cut and
nothing more; and that lookups by offset and time touch a few rows of a memory map. It knows neither
networks nor consensus nor consumers: `cluster` decides what is appended and when it is committed.
"""

from penstock.log.compaction import Compaction, plan_compaction
from penstock.log.disk import Disk, DiskFile, LocalDisk
from penstock.log.dump import dump_file
from penstock.log.flush import Flush
from penstock.log.hard_state import HardStateFile
from penstock.log.index import EntryKind, IndexHeader, Row, index_bytes
from penstock.log.partition_log import CheckpointRun, PartitionLog
from penstock.log.scrub import Damage, damage_of, scrub_segment
from penstock.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    STATE_SUFFIX,
    FileRange,
    Segment,
    segment_path,
)
from penstock.log.settings import LogSettings
from penstock.log.snapshot import (
    Snapshot,
    load_snapshot,
    read_snapshot,
    save_snapshot,
    snapshot_name,
)
from penstock.log.state import StateEntry
from penstock.log.verify import VerifyReport, check_copied_segments, verify_directory

__all__ = [
    "INDEX_SUFFIX",
    "LOG_SUFFIX",
    "STATE_SUFFIX",
    "CheckpointRun",
    "Compaction",
    "Damage",
    "Disk",
    "DiskFile",
    "EntryKind",
    "FileRange",
    "Flush",
    "HardStateFile",
    "IndexHeader",
    "LocalDisk",
    "LogSettings",
    "PartitionLog",
    "Row",
    "Segment",
    "Snapshot",
    "StateEntry",
    "VerifyReport",
    "check_copied_segments",
    "damage_of",
    "dump_file",
    "index_bytes",
    "load_snapshot",
    "plan_compaction",
    "read_snapshot",
    "save_snapshot",
    "scrub_segment",
    "segment_path",
    "snapshot_name",
    "verify_directory",
]

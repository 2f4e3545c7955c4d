"""Runs the logs of a node and the metadata that all nodes share.

A write anywhere in Penstock is a proposal to a `ReplicatedLog` that commits: records to a topic's
partition, commands to the metadata log, group changes to a shard of the groups. This room opens the
logs, batches proposals into flushes, applies what is committed to the machine of each log, keeps
the files in order, and promises that a committed entry survives. What the entries mean to clients
is left to `broker`.
"""

from penstock.cluster.cluster import Cluster
from penstock.cluster.commands import (
    ChangeReplicas,
    ConfigureGroup,
    ConfigureShareGroup,
    DrainNode,
    ForgetGroup,
    ForgetShareGroup,
    RemoveNode,
)
from penstock.cluster.deliveries import Delivery, DeliveryCounts, Return, Waiter
from penstock.cluster.described import Node, Replicas, Topic
from penstock.cluster.directories import DirectoryLock
from penstock.cluster.flush_pace import FlushPace
from penstock.cluster.housekeeping import DiskSpace, Housekeeper
from penstock.cluster.links import Leader, RequestKind
from penstock.cluster.machine import Machine, RecordlessMachine
from penstock.cluster.metadata import METADATA_GROUP, ClusterMetadata, check_growth, check_positions
from penstock.cluster.overview import Survey
from penstock.cluster.partition import Partition
from penstock.cluster.partition_intake import Placed, Placement
from penstock.cluster.partition_queue import PartitionQueue
from penstock.cluster.partition_stage import ScheduledRecord
from penstock.cluster.placement import choose_replicas, plan_moves, plan_shard_replicas
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.resharding import (
    BeginReshard,
    CancelReshard,
    FenceTopic,
    LiftFence,
    Resharding,
    SwitchTopics,
    check_fence,
)
from penstock.cluster.staged_writes import StagedBatch
from penstock.cluster.status import PartitionStatus, ReplicaStatus
from penstock.cluster.topic_checks import (
    check_group_name,
    check_in_sync_change,
    check_in_sync_left,
    check_in_sync_min,
    check_new_topic,
    check_partition_count,
    check_topic_name,
)
from penstock.cluster.topic_machine import Archived, StartMoved, decode_events
from penstock.cluster.topic_settings import (
    DEAD_LETTER_SUFFIX,
    DEFINITIONS,
    LEASE_MS_MAX,
    SettingDefinition,
    SettingType,
    TopicSettings,
    check_group_setting_names,
    check_group_settings,
    check_settings,
    no_setting,
    resolve_group_settings,
)
from penstock.cluster.vigil import Vigil
from penstock.cluster.workplace import Workplace
from penstock.cluster.write_events import (
    WriteDecided,
    WriteEvent,
    WritePart,
    WriteRefused,
    WriteStaged,
)

__all__ = [
    "DEAD_LETTER_SUFFIX",
    "DEFINITIONS",
    "LEASE_MS_MAX",
    "METADATA_GROUP",
    "Archived",
    "BeginReshard",
    "CancelReshard",
    "ChangeReplicas",
    "Cluster",
    "ClusterMetadata",
    "ConfigureGroup",
    "ConfigureShareGroup",
    "Delivery",
    "DeliveryCounts",
    "DirectoryLock",
    "DiskSpace",
    "DrainNode",
    "FenceTopic",
    "FlushPace",
    "ForgetGroup",
    "ForgetShareGroup",
    "Housekeeper",
    "Leader",
    "LiftFence",
    "Machine",
    "Node",
    "Partition",
    "PartitionQueue",
    "PartitionStatus",
    "Placed",
    "Placement",
    "RecordlessMachine",
    "RemoveNode",
    "ReplicaStatus",
    "Replicas",
    "ReplicatedLog",
    "RequestKind",
    "Resharding",
    "Return",
    "ScheduledRecord",
    "SettingDefinition",
    "SettingType",
    "StagedBatch",
    "StartMoved",
    "Survey",
    "SwitchTopics",
    "Topic",
    "TopicSettings",
    "Vigil",
    "Waiter",
    "Workplace",
    "WriteDecided",
    "WriteEvent",
    "WritePart",
    "WriteRefused",
    "WriteStaged",
    "check_fence",
    "check_group_name",
    "check_group_setting_names",
    "check_group_settings",
    "check_growth",
    "check_in_sync_change",
    "check_in_sync_left",
    "check_in_sync_min",
    "check_new_topic",
    "check_partition_count",
    "check_positions",
    "check_settings",
    "check_topic_name",
    "choose_replicas",
    "decode_events",
    "no_setting",
    "plan_moves",
    "plan_shard_replicas",
    "resolve_group_settings",
]

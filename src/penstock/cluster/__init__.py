"""Runs the logs of a node and the metadata that all nodes share.

A write anywhere in Penstock is a proposal to a `ReplicatedLog` that commits: records to a topic's
partition, commands to the metadata log, group changes to a shard of the groups. This room opens the
logs, batches proposals into flushes, applies what is committed to the machine of each log, keeps
the files in order, and promises that a committed entry survives. What the entries mean to clients
is left to `broker`.
"""

from penstock.cluster.cluster import Cluster
from penstock.cluster.directories import DirectoryLock
from penstock.cluster.housekeeping import DiskSpace, Housekeeper
from penstock.cluster.machine import Machine
from penstock.cluster.metadata import (
    ClusterMetadata,
    Topic,
    check_growth,
    check_new_topic,
    check_topic_name,
)
from penstock.cluster.partition import Partition
from penstock.cluster.replicated_log import ReplicatedLog, Workplace
from penstock.cluster.topic_settings import (
    DEFINITIONS,
    SettingDefinition,
    SettingType,
    TopicSettings,
    check_settings,
)

__all__ = [
    "DEFINITIONS",
    "Cluster",
    "ClusterMetadata",
    "DirectoryLock",
    "DiskSpace",
    "Housekeeper",
    "Machine",
    "Partition",
    "ReplicatedLog",
    "SettingDefinition",
    "SettingType",
    "Topic",
    "TopicSettings",
    "Workplace",
    "check_growth",
    "check_new_topic",
    "check_settings",
    "check_topic_name",
]

"""All APIs of the door, by key.

The four that every client uses at once are loaded with the node. The rest are loaded when the first
client asks for them: their schemas are hundreds of classes, and making those would double the time
that a node takes to start. What they will be is listed here; a test compares the list with them.
"""

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

from penstock.protocols.kafka.api import Api, Reply, Request
from penstock.protocols.kafka.api_versions import api_versions_api
from penstock.protocols.kafka.fetch import fetch_api
from penstock.protocols.kafka.metadata import metadata_api
from penstock.protocols.kafka.produce import produce_api


class Listed(NamedTuple):
    """An API that is loaded when it is first used, from the module that answers it."""

    key: int
    name: str
    version_min: int
    version_max: int
    module: str
    may_wait: bool = False


LISTED = (
    Listed(2, "ListOffsets", 1, 8, "list_offsets"),
    Listed(8, "OffsetCommit", 2, 10, "group_offsets_by_id"),
    Listed(9, "OffsetFetch", 1, 10, "group_offsets_by_id"),
    Listed(10, "FindCoordinator", 0, 6, "coordinator"),
    Listed(11, "JoinGroup", 0, 9, "classic_groups", may_wait=True),
    Listed(12, "Heartbeat", 0, 4, "classic_groups"),
    Listed(13, "LeaveGroup", 0, 5, "classic_groups"),
    Listed(14, "SyncGroup", 0, 5, "classic_groups", may_wait=True),
    Listed(15, "DescribeGroups", 0, 6, "group_admin"),
    Listed(16, "ListGroups", 0, 5, "group_admin"),
    Listed(19, "CreateTopics", 2, 7, "topics"),
    Listed(20, "DeleteTopics", 1, 6, "topics"),
    Listed(21, "DeleteRecords", 0, 2, "topics"),
    Listed(22, "InitProducerId", 0, 4, "cluster"),
    Listed(23, "OffsetForLeaderEpoch", 2, 4, "list_offsets"),
    Listed(32, "DescribeConfigs", 1, 4, "configs"),
    Listed(33, "AlterConfigs", 0, 2, "configs"),
    Listed(35, "DescribeLogDirs", 1, 4, "cluster"),
    Listed(37, "CreatePartitions", 0, 3, "topics"),
    Listed(42, "DeleteGroups", 0, 2, "group_admin"),
    Listed(43, "ElectLeaders", 0, 2, "elect_leaders", may_wait=True),
    Listed(44, "IncrementalAlterConfigs", 0, 1, "configs"),
    Listed(45, "AlterPartitionReassignments", 0, 1, "reassignments"),
    Listed(46, "ListPartitionReassignments", 0, 0, "reassignments"),
    Listed(47, "OffsetDelete", 0, 0, "group_offsets_by_id"),
    Listed(55, "DescribeQuorum", 0, 2, "describe_quorum"),
    Listed(60, "DescribeCluster", 0, 1, "cluster"),
    Listed(68, "ConsumerGroupHeartbeat", 0, 1, "consumer_groups"),
    Listed(69, "ConsumerGroupDescribe", 0, 1, "consumer_groups"),
    Listed(76, "ShareGroupHeartbeat", 1, 1, "share_groups"),
    Listed(77, "ShareGroupDescribe", 1, 1, "share_groups"),
    Listed(78, "ShareFetch", 1, 2, "share_fetch", may_wait=True),
    Listed(79, "ShareAcknowledge", 1, 2, "share_fetch"),
    Listed(90, "DescribeShareGroupOffsets", 0, 1, "share_offsets"),
    Listed(91, "AlterShareGroupOffsets", 0, 0, "share_offsets"),
    Listed(92, "DeleteShareGroupOffsets", 0, 0, "share_offsets"),
)


def all_apis() -> Mapping[int, Api]:
    """Return a fresh set of APIs, each with its own state where it has any."""
    apis = [produce_api(), fetch_api(), metadata_api(), *(_later(listed) for listed in LISTED)]
    apis.append(api_versions_api(apis))
    return {api.key: api for api in apis}


def load(listed: Listed) -> Api:
    """Load the module of an API and return the API."""
    module = import_module(f"penstock.protocols.kafka.{listed.module}")
    apis: list[Api] = module.apis()
    return next(api for api in apis if api.key == listed.key)


def _later(listed: Listed) -> Api:
    loaded: list[Api] = []

    def start(request: Request, reply: Reply) -> asyncio.Task[None] | None:
        if not loaded:
            loaded.append(load(listed))
        return loaded[0].start(request, reply)

    return Api(
        listed.key,
        listed.name,
        listed.version_min,
        listed.version_max,
        start,
        may_wait=listed.may_wait,
    )

"""Python programs speak to a cluster through this room.

It wraps librdkafka in typed calls: frozen values come out, errors of `penstock.errors` are raised,
and no name of the library underneath reaches the caller. What operators do goes over HTTP, in the
same manner. Delivery guarantees are those of the
broker and of librdkafka's retries; nothing is cached and nothing is promised beyond that. Server
rooms are never imported here.
"""

from penstock.client.admin import Admin
from penstock.client.cluster import (
    ClusterAdmin,
    ClusterNode,
    ClusterOverview,
    ClusterPartition,
    ClusterReplica,
)
from penstock.client.connection import BOOTSTRAP_DEFAULT, Connection
from penstock.client.consumer import Consumer, Disconnection, PartitionEnd
from penstock.client.descriptions import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    NewTopic,
    OffsetRange,
    PartitionDescription,
    PartitionProgress,
    TopicDescription,
    TopicListing,
    TopicSetting,
)
from penstock.client.groups import Groups
from penstock.client.http import URL_DEFAULT
from penstock.client.messages import Header, Message, NewMessage, Placement
from penstock.client.producer import Producer

__all__ = [
    "BOOTSTRAP_DEFAULT",
    "URL_DEFAULT",
    "Admin",
    "ClusterAdmin",
    "ClusterNode",
    "ClusterOverview",
    "ClusterPartition",
    "ClusterReplica",
    "Connection",
    "Consumer",
    "Disconnection",
    "GroupDescription",
    "GroupListing",
    "Groups",
    "Header",
    "MemberDescription",
    "Message",
    "NewMessage",
    "NewTopic",
    "OffsetRange",
    "PartitionDescription",
    "PartitionEnd",
    "PartitionProgress",
    "Placement",
    "Producer",
    "TopicDescription",
    "TopicListing",
    "TopicSetting",
]

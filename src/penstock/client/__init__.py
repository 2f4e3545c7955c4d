"""Python programs speak to a cluster through this room.

`Client` and `AsyncClient` are two faces of one thing: queues, topics and tasks over HTTP, with
requests and answers, retries, buffers and the renewal of leases as plain code that both share.
`Producer`, `Consumer`, `Admin` and `Groups` wrap librdkafka for those who read and write the log.
Frozen values come out, errors of `penstock.errors` are raised, and no name of a library underneath
reaches the caller. Delivery guarantees are those of the broker; a call is repeated only where that
does no harm. Server rooms are never imported here.
"""

from penstock.client.admin import Admin
from penstock.client.archives import ArchivedPartition, ArchivedTopic, Archives, ArchiveState
from penstock.client.async_client import AsyncClient
from penstock.client.buffers import BufferLimits
from penstock.client.client import Client
from penstock.client.cluster import (
    ClusterAdmin,
    ClusterNode,
    ClusterOverview,
    ClusterPartition,
    ClusterReplica,
)
from penstock.client.connection import BOOTSTRAP_DEFAULT, Connection, check_bootstrap
from penstock.client.consumer import Consumer, Disconnection, PartitionEnd
from penstock.client.dead_letters import (
    AsyncDeadLetters,
    ClearingChoice,
    DeadLetter,
    DeadLetterChoice,
    DeadLetters,
    LetterEdit,
    Purged,
    Redriven,
)
from penstock.client.deliveries import (
    Exchange,
    Leased,
    LeasedMessage,
    ReceiveOptions,
    Refusal,
)
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
from penstock.client.journals import JournalEntry, JournalPage
from penstock.client.messages import Header, Message, NewMessage, Placement
from penstock.client.producer import Producer
from penstock.client.producers import AsyncBufferedProducer, BufferedProducer
from penstock.client.publications import Publication, Published, PublishOptions
from penstock.client.queue_groups import (
    AsyncQueueGroups,
    BlockedKey,
    QueueGroup,
    QueueGroupPartition,
    QueueGroups,
    QueueGroupSetting,
    QueueGroupSummary,
    QueueGroupTotals,
    TraceStep,
)
from penstock.client.reshards import FencedPartition, Reshards, ReshardStatus, TopicFence
from penstock.client.schedule import AsyncSchedule, Schedule, ScheduledMessage, SchedulePage
from penstock.client.subscriptions import AsyncSubscription, Subscription
from penstock.client.tasks import (
    AsyncTaskQueue,
    EnqueuedTask,
    LeaseOptions,
    Task,
    TaskOptions,
    TaskQueue,
    TaskStatus,
    TaskTypeStats,
)
from penstock.client.topics import PartitionBounds, SettingValue, TopicDetails, TopicSummary
from penstock.client.wire import check_url
from penstock.client.worker import (
    TaskApp,
    TaskGivenUp,
    TaskPostponed,
    Worker,
    WorkerCounts,
    WorkerSettings,
)
from penstock.client.writes import StagedPart, StagedWriter, StageName, WriterState

__all__ = [
    "BOOTSTRAP_DEFAULT",
    "URL_DEFAULT",
    "Admin",
    "ArchiveState",
    "ArchivedPartition",
    "ArchivedTopic",
    "Archives",
    "AsyncBufferedProducer",
    "AsyncClient",
    "AsyncDeadLetters",
    "AsyncQueueGroups",
    "AsyncSchedule",
    "AsyncSubscription",
    "AsyncTaskQueue",
    "BlockedKey",
    "BufferLimits",
    "BufferedProducer",
    "ClearingChoice",
    "Client",
    "ClusterAdmin",
    "ClusterNode",
    "ClusterOverview",
    "ClusterPartition",
    "ClusterReplica",
    "Connection",
    "Consumer",
    "DeadLetter",
    "DeadLetterChoice",
    "DeadLetters",
    "Disconnection",
    "EnqueuedTask",
    "Exchange",
    "FencedPartition",
    "GroupDescription",
    "GroupListing",
    "Groups",
    "Header",
    "JournalEntry",
    "JournalPage",
    "LeaseOptions",
    "Leased",
    "LeasedMessage",
    "LetterEdit",
    "MemberDescription",
    "Message",
    "NewMessage",
    "NewTopic",
    "OffsetRange",
    "PartitionBounds",
    "PartitionDescription",
    "PartitionEnd",
    "PartitionProgress",
    "Placement",
    "Producer",
    "Publication",
    "PublishOptions",
    "Published",
    "Purged",
    "QueueGroup",
    "QueueGroupPartition",
    "QueueGroupSetting",
    "QueueGroupSummary",
    "QueueGroupTotals",
    "QueueGroups",
    "ReceiveOptions",
    "Redriven",
    "Refusal",
    "ReshardStatus",
    "Reshards",
    "Schedule",
    "SchedulePage",
    "ScheduledMessage",
    "SettingValue",
    "StageName",
    "StagedPart",
    "StagedWriter",
    "Subscription",
    "Task",
    "TaskApp",
    "TaskGivenUp",
    "TaskOptions",
    "TaskPostponed",
    "TaskQueue",
    "TaskStatus",
    "TaskTypeStats",
    "TopicDescription",
    "TopicDetails",
    "TopicFence",
    "TopicListing",
    "TopicSetting",
    "TopicSummary",
    "TraceStep",
    "Worker",
    "WorkerCounts",
    "WorkerSettings",
    "WriterState",
    "check_bootstrap",
    "check_url",
]

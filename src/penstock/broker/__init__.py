"""What a node can do, as verbs: publish, fetch, create a topic, commit an offset.

Every door speaks to `Broker` and to nothing below it. The room checks what callers ask against the
settings of topics, turns it into proposals and reads of `cluster`, and gives back values or raises
errors of `penstock.errors`; it knows no wire format.
"""

from penstock.broker.archives import ArchivedPartition
from penstock.broker.broker import Broker, Check
from penstock.broker.burial import SOURCE_TIMESTAMP, SOURCE_TOPIC, source_of
from penstock.broker.dead_letter_values import DeadLetter, DeadLetterFilter, Purge, Redrive
from penstock.broker.dead_letters import DeadLetters
from penstock.broker.fetch import Fetched, FetchRequest, check_epoch
from penstock.broker.journals import JournalPage
from penstock.broker.messages import (
    Acks,
    Messages,
    NewMessage,
    Published,
    PublishedRun,
    time_in,
)
from penstock.broker.operations import ClusterStatus, Move, NodeStatus, hot_partitions
from penstock.broker.publish import Publication
from penstock.broker.queue_attributes import (
    GROUP_LIMIT,
    GROUP_SCOPE,
    QUEUE_CHOICES,
    QUEUE_CREATED,
    QUEUE_MESSAGE_BYTES_MAX,
    QUEUE_MODIFIED,
    QUEUE_NUMBERS,
    QUEUE_SETTABLE,
    QUEUE_SWITCHES,
    check_queue_attribute,
    is_queue_arn,
    is_queue_attribute,
    read_redrive_allow_policy,
    read_redrive_policy,
)
from penstock.broker.queue_groups import ResetTarget
from penstock.broker.queue_settings import (
    ATTRIBUTES_SETTING,
    MOVE_RATE_MAX,
    PROGRESS_SETTING,
    TAGS_SETTING,
    TASKS_KEPT,
    TASKS_SETTING,
    AskedMove,
    MoveProgress,
    MoveStatus,
    check_tags,
    kept_texts,
)
from penstock.broker.queue_values import (
    BlockedKeyStatus,
    Exchanged,
    GroupStatus,
    InFlight,
    Message,
    Nack,
    Outcome,
    PartitionGroupStatus,
    PlainMessages,
    Reject,
    ResetPlan,
    TopicReceipt,
)
from penstock.broker.queues import Queues
from penstock.broker.quorum import QuorumReplica, QuorumStatus
from penstock.broker.resharding import FencedPartition, ReshardStatus, TopicFence
from penstock.broker.schedule import Schedule, Scheduled
from penstock.broker.share import Acknowledged, Acknowledgement, Acquired, SharePartition
from penstock.broker.share_settings import SHARE_SETTINGS
from penstock.broker.staged_writes import EPOCH_MAX, StageBatch, StagedRunStatus
from penstock.broker.statistics import Statistics
from penstock.broker.task_values import (
    EnqueuedTask,
    LeasedTask,
    NewTask,
    TaskStatus,
    TypeStatus,
)
from penstock.broker.topics import NewTopic, SettingValue
from penstock.broker.writes import Committed, WriteCommit, WriterStatus
from penstock.cluster import Partition, PartitionStatus, SettingType, Topic, WritePart
from penstock.delivery import GroupSettings, JournalEntry, JournalKind, TraceKind, TraceStep
from penstock.log import FileRange
from penstock.record import IDEMPOTENCY_KEY, Record, encode_batch

__all__ = [
    "ATTRIBUTES_SETTING",
    "EPOCH_MAX",
    "GROUP_LIMIT",
    "GROUP_SCOPE",
    "IDEMPOTENCY_KEY",
    "MOVE_RATE_MAX",
    "PROGRESS_SETTING",
    "QUEUE_CHOICES",
    "QUEUE_CREATED",
    "QUEUE_MESSAGE_BYTES_MAX",
    "QUEUE_MODIFIED",
    "QUEUE_NUMBERS",
    "QUEUE_SETTABLE",
    "QUEUE_SWITCHES",
    "SHARE_SETTINGS",
    "SOURCE_TIMESTAMP",
    "SOURCE_TOPIC",
    "TAGS_SETTING",
    "TASKS_KEPT",
    "TASKS_SETTING",
    "Acknowledged",
    "Acknowledgement",
    "Acks",
    "Acquired",
    "ArchivedPartition",
    "AskedMove",
    "BlockedKeyStatus",
    "Broker",
    "Check",
    "ClusterStatus",
    "Committed",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetters",
    "EnqueuedTask",
    "Exchanged",
    "FencedPartition",
    "FetchRequest",
    "Fetched",
    "FileRange",
    "GroupSettings",
    "GroupStatus",
    "InFlight",
    "JournalEntry",
    "JournalKind",
    "JournalPage",
    "LeasedTask",
    "Message",
    "Messages",
    "Move",
    "MoveProgress",
    "MoveStatus",
    "Nack",
    "NewMessage",
    "NewTask",
    "NewTopic",
    "NodeStatus",
    "Outcome",
    "Partition",
    "PartitionGroupStatus",
    "PartitionStatus",
    "PlainMessages",
    "Publication",
    "Published",
    "PublishedRun",
    "Purge",
    "Queues",
    "QuorumReplica",
    "QuorumStatus",
    "Record",
    "Redrive",
    "Reject",
    "ResetPlan",
    "ResetTarget",
    "ReshardStatus",
    "Schedule",
    "Scheduled",
    "SettingType",
    "SettingValue",
    "SharePartition",
    "StageBatch",
    "StagedRunStatus",
    "Statistics",
    "TaskStatus",
    "Topic",
    "TopicFence",
    "TopicReceipt",
    "TraceKind",
    "TraceStep",
    "TypeStatus",
    "WriteCommit",
    "WritePart",
    "WriterStatus",
    "check_epoch",
    "check_queue_attribute",
    "check_tags",
    "encode_batch",
    "hot_partitions",
    "is_queue_arn",
    "is_queue_attribute",
    "kept_texts",
    "read_redrive_allow_policy",
    "read_redrive_policy",
    "source_of",
    "time_in",
]

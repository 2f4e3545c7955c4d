"""The table from librdkafka's error codes to the errors of this package."""

# Codes that arise in librdkafka itself begin with an underscore and are public all the same.
# ruff: noqa: SLF001

from confluent_kafka import KafkaError, KafkaException

from penstock import errors

ALL_BROKERS_DOWN: int = KafkaError._ALL_BROKERS_DOWN
PARTITION_END: int = KafkaError._PARTITION_EOF
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
# librdkafka reports these and then overcomes them by itself.
PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})

_KINDS: dict[int, type[errors.PenstockError]] = {
    KafkaError._ALL_BROKERS_DOWN: errors.Unavailable,
    KafkaError._MSG_TIMED_OUT: errors.TimedOut,
    KafkaError._RESOLVE: errors.Unavailable,
    KafkaError._TIMED_OUT: errors.TimedOut,
    KafkaError._TIMED_OUT_QUEUE: errors.TimedOut,
    KafkaError._TRANSPORT: errors.Unavailable,
    KafkaError._WAIT_COORD: errors.Unavailable,
    KafkaError._INVALID_ARG: errors.InvalidRequest,
    KafkaError._UNKNOWN_PARTITION: errors.TopicNotFound,
    KafkaError._UNKNOWN_TOPIC: errors.TopicNotFound,
    KafkaError._UNKNOWN_GROUP: errors.GroupNotFound,
    KafkaError._UNSUPPORTED_FEATURE: errors.UnsupportedVersion,
    KafkaError._AUTO_OFFSET_RESET: errors.OffsetOutOfRange,
    KafkaError._BAD_COMPRESSION: errors.Corruption,
    KafkaError._BAD_MSG: errors.Corruption,
    KafkaError._FENCED: errors.ProducerFenced,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: errors.CoordinatorLoading,
    KafkaError.COORDINATOR_NOT_AVAILABLE: errors.Unavailable,
    KafkaError.FENCED_INSTANCE_ID: errors.FencedInstanceId,
    KafkaError.FENCED_MEMBER_EPOCH: errors.FencedMemberEpoch,
    KafkaError.GROUP_ID_NOT_FOUND: errors.GroupNotFound,
    KafkaError.GROUP_MAX_SIZE_REACHED: errors.GroupMaxSizeReached,
    KafkaError.GROUP_SUBSCRIBED_TO_TOPIC: errors.GroupSubscribedToTopic,
    KafkaError.ILLEGAL_GENERATION: errors.IllegalGeneration,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: errors.InconsistentGroupProtocol,
    KafkaError.INVALID_CONFIG: errors.InvalidSetting,
    KafkaError.INVALID_GROUP_ID: errors.InvalidGroupId,
    KafkaError.INVALID_MSG: errors.InvalidBatch,
    KafkaError.INVALID_PARTITIONS: errors.InvalidPartitionCount,
    KafkaError.INVALID_PRODUCER_EPOCH: errors.ProducerFenced,
    KafkaError.INVALID_RECORD: errors.InvalidBatch,
    KafkaError.INVALID_REPLICATION_FACTOR: errors.InvalidReplication,
    KafkaError.INVALID_REPLICA_ASSIGNMENT: errors.InvalidAssignment,
    KafkaError.INVALID_REQUEST: errors.InvalidRequest,
    KafkaError.INVALID_SESSION_TIMEOUT: errors.InvalidSessionTimeout,
    KafkaError.INVALID_TIMESTAMP: errors.InvalidTimestamp,
    KafkaError.KAFKA_STORAGE_ERROR: errors.StorageFailed,
    KafkaError.LEADER_NOT_AVAILABLE: errors.NotLeader,
    KafkaError.MSG_SIZE_TOO_LARGE: errors.BatchTooLarge,
    KafkaError.NON_EMPTY_GROUP: errors.GroupNotEmpty,
    KafkaError.NOT_COORDINATOR: errors.NotCoordinator,
    KafkaError.NOT_ENOUGH_REPLICAS: errors.NotEnoughReplicas,
    KafkaError.NOT_LEADER_FOR_PARTITION: errors.NotLeader,
    KafkaError.OFFSET_OUT_OF_RANGE: errors.OffsetOutOfRange,
    KafkaError.REBALANCE_IN_PROGRESS: errors.RebalanceInProgress,
    KafkaError.RECORD_LIST_TOO_LARGE: errors.BatchTooLarge,
    KafkaError.REQUEST_TIMED_OUT: errors.TimedOut,
    KafkaError.STALE_MEMBER_EPOCH: errors.StaleMemberEpoch,
    KafkaError.TOPIC_ALREADY_EXISTS: errors.TopicExists,
    KafkaError.TOPIC_EXCEPTION: errors.InvalidTopicName,
    KafkaError.UNKNOWN_MEMBER_ID: errors.UnknownMember,
    KafkaError.UNKNOWN_TOPIC_ID: errors.TopicNotFound,
    KafkaError.UNKNOWN_TOPIC_OR_PART: errors.TopicNotFound,
    KafkaError.UNSUPPORTED_ASSIGNOR: errors.UnsupportedAssignor,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: errors.UnsupportedCompression,
    KafkaError.UNSUPPORTED_VERSION: errors.UnsupportedVersion,
}


def translate(failure: KafkaException | KafkaError, doing: str) -> errors.PenstockError:
    """Return the error to raise; `doing` opens its message, as in `create topic orders`."""
    error = failure.args[0] if isinstance(failure, KafkaException) else failure
    if not isinstance(error, KafkaError):
        # librdkafka's configuration errors carry a plain text.
        return errors.InvalidRequest(f"{doing}: {error}")
    kind = _KINDS.get(error.code())
    if kind is None:
        kind = errors.Unavailable if error.retriable() else errors.PenstockError
    return kind(f"{doing}: {error.str()} ({error.name()})")

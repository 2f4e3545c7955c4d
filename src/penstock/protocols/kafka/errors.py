"""Our errors as Kafka's error codes: one table, used by every API.

An error is counted where it is translated, so that none is answered without being counted.
"""

from typing import TypedDict

from kio.schema.errors import ErrorCode

from penstock import errors
from penstock.broker import Broker
from penstock.errors import PenstockError

# The most specific class comes first in an error's own order of classes, so each may appear once.
ERROR_CODES: dict[type[PenstockError], ErrorCode] = {
    errors.InvalidRequest: ErrorCode.invalid_request,
    errors.NotFound: ErrorCode.invalid_request,
    errors.Conflict: ErrorCode.invalid_request,
    errors.Unavailable: ErrorCode.leader_not_available,
    errors.Corruption: ErrorCode.kafka_storage_error,
    errors.InvalidTopicName: ErrorCode.invalid_topic_exception,
    errors.InvalidPartitionCount: ErrorCode.invalid_partitions,
    errors.InvalidReplication: ErrorCode.invalid_replication_factor,
    errors.InvalidAssignment: ErrorCode.invalid_replica_assignment,
    errors.InvalidSetting: ErrorCode.invalid_config,
    errors.InvalidBatch: ErrorCode.invalid_record,
    errors.BatchTooLarge: ErrorCode.message_too_large,
    errors.UnsupportedBatchFormat: ErrorCode.unsupported_for_message_format,
    errors.UnsupportedCompression: ErrorCode.unsupported_compression_type,
    errors.BadChecksum: ErrorCode.corrupt_message,
    errors.InvalidAcks: ErrorCode.invalid_required_acks,
    errors.InvalidTimestamp: ErrorCode.invalid_timestamp,
    errors.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    errors.UnsupportedForTopic: ErrorCode.policy_violation,
    errors.InvalidGroupId: ErrorCode.invalid_group_id,
    errors.InvalidSessionTimeout: ErrorCode.invalid_session_timeout,
    errors.InvalidSubscription: ErrorCode.invalid_regular_expression,
    errors.UnsupportedAssignor: ErrorCode.unsupported_assignor,
    errors.MetadataTooLarge: ErrorCode.offset_metadata_too_large,
    errors.UnsupportedVersion: ErrorCode.unsupported_version,
    errors.TopicNotFound: ErrorCode.unknown_topic_or_partition,
    errors.GroupNotFound: ErrorCode.group_id_not_found,
    errors.FetchSessionNotFound: ErrorCode.fetch_session_id_not_found,
    errors.ShareSessionNotFound: ErrorCode.share_session_not_found,
    errors.InvalidShareSessionEpoch: ErrorCode.invalid_share_session_epoch,
    errors.LeaseExpired: ErrorCode.invalid_record_state,
    errors.TopicExists: ErrorCode.topic_already_exists,
    errors.NotMoving: ErrorCode.no_reassignment_in_progress,
    errors.AlreadyLed: ErrorCode.election_not_needed,
    errors.TopicIdMismatch: ErrorCode.unknown_topic_id,
    errors.DuplicateSequence: ErrorCode.duplicate_sequence_number,
    errors.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    errors.UnknownProducer: ErrorCode.unknown_producer_id,
    errors.ProducerFenced: ErrorCode.invalid_producer_epoch,
    errors.FencedLeaderEpoch: ErrorCode.fenced_leader_epoch,
    errors.UnknownLeaderEpoch: ErrorCode.unknown_leader_epoch,
    errors.InvalidFetchSessionEpoch: ErrorCode.invalid_fetch_session_epoch,
    errors.UnknownMember: ErrorCode.unknown_member_id,
    errors.IllegalGeneration: ErrorCode.illegal_generation,
    errors.RebalanceInProgress: ErrorCode.rebalance_in_progress,
    errors.InconsistentGroupProtocol: ErrorCode.inconsistent_group_protocol,
    errors.MemberIdRequired: ErrorCode.member_id_required,
    errors.FencedMemberEpoch: ErrorCode.fenced_member_epoch,
    errors.StaleMemberEpoch: ErrorCode.stale_member_epoch,
    errors.UnreleasedInstanceId: ErrorCode.unreleased_instance_id,
    errors.FencedInstanceId: ErrorCode.fenced_instance_id,
    errors.GroupMaxSizeReached: ErrorCode.group_max_size_reached,
    errors.GroupNotEmpty: ErrorCode.non_empty_group,
    errors.GroupSubscribedToTopic: ErrorCode.group_subscribed_to_topic,
    errors.DiskFull: ErrorCode.kafka_storage_error,
    errors.StorageFailed: ErrorCode.kafka_storage_error,
    errors.NotLeader: ErrorCode.not_leader_or_follower,
    errors.PreferredLeaderUnavailable: ErrorCode.preferred_leader_not_available,
    errors.EligibleLeadersUnavailable: ErrorCode.eligible_leaders_not_available,
    # Clients look up the topic again and send again, for as long as they wait for a leader.
    errors.TopicFenced: ErrorCode.not_leader_or_follower,
    errors.NotEnoughReplicas: ErrorCode.not_enough_replicas,
    errors.TimedOut: ErrorCode.request_timed_out,
    errors.CoordinatorLoading: ErrorCode.coordinator_not_available,
    errors.NotCoordinator: ErrorCode.not_coordinator,
    errors.ShuttingDown: ErrorCode.coordinator_not_available,
}


class ErrorFields(TypedDict):
    """The two fields in which most answers tell of an error."""

    error_code: ErrorCode
    error_message: str | None


def error_fields(error: PenstockError | None, broker: Broker) -> ErrorFields:
    """Return the fields of an error that is answered, or of none."""
    code = error_code(error, broker)
    return ErrorFields(error_code=code, error_message=str(error) if error else None)


def error_code(error: PenstockError | None, broker: Broker) -> ErrorCode:
    """Return the code of an error that is answered, or that of none."""
    if error is None:
        return ErrorCode.none
    count_error(error, broker)
    return code_of(error)


def count_error(error: PenstockError, broker: Broker) -> None:
    """Count an error whose code comes into the answer by other ways than `error_code`."""
    broker.statistics.count_error("kafka", type(error).__name__)


def code_of(error: PenstockError) -> ErrorCode:
    """Return the code of the most specific class of an error, without counting it."""
    for cls in type(error).__mro__:
        if cls in ERROR_CODES:
            return ERROR_CODES[cls]
    return ErrorCode.unknown_server_error

"""What users may import. A change here shows in review, and belongs into the changelog."""

import importlib
from types import ModuleType

import pytest

PUBLIC_NAMES = {
    "penstock": "__version__",
    "penstock.client": """
        Admin ArchiveState ArchivedPartition ArchivedTopic Archives AsyncBufferedProducer
        AsyncClient AsyncDeadLetters AsyncQueueGroups
        AsyncSchedule AsyncSubscription AsyncTaskQueue BOOTSTRAP_DEFAULT BlockedKey
        BufferLimits BufferedProducer ClearingChoice Client ClusterAdmin ClusterNode
        ClusterOverview ClusterPartition ClusterReplica Connection Consumer DeadLetter
        DeadLetterChoice DeadLetters Disconnection EnqueuedTask Exchange FencedPartition
        GroupDescription GroupListing Groups Header JournalEntry JournalPage LeaseOptions Leased
        LeasedMessage LetterEdit MemberDescription Message NewMessage NewTopic OffsetRange
        PartitionBounds PartitionDescription
        PartitionEnd PartitionProgress Placement Producer Publication PublishOptions
        Published Purged QueueGroup QueueGroupPartition QueueGroupSetting QueueGroupSummary
        QueueGroupTotals QueueGroups ReceiveOptions Redriven Refusal ReshardStatus Reshards Schedule
        SchedulePage
        ScheduledMessage SettingValue StageName StagedPart StagedWriter Subscription Task TaskApp
        TaskGivenUp TaskOptions
        TaskPostponed TaskQueue TaskStatus TaskTypeStats TopicDescription TopicDetails
        TopicFence TopicListing TopicSetting TopicSummary TraceStep URL_DEFAULT Worker WorkerCounts
        WorkerSettings WriterState check_bootstrap check_url
    """,
    "penstock.errors": """
        AlreadyLed ArchiveUnavailable BadChecksum BatchTooLarge Conflict CoordinatorLoading
        Corruption DataDirectoryInUse DiskFull DuplicateSequence EligibleLeadersUnavailable
        FencedInstanceId FencedLeaderEpoch FencedMemberEpoch FetchSessionNotFound
        GroupMaxSizeReached GroupNotEmpty GroupNotFound GroupSubscribedToTopic IllegalGeneration
        InconsistentGroupProtocol InvalidAcks InvalidAssignment InvalidBatch InvalidConfiguration
        InvalidContext InvalidFetchSessionEpoch InvalidGroupId InvalidPartitionCount InvalidReceipt
        InvalidRecords InvalidReplication InvalidRequest InvalidSessionTimeout InvalidSetting
        InvalidShareSessionEpoch InvalidSubscription InvalidTimestamp InvalidTopicName
        LeaseExpired MemberIdRequired MessageNotFound MetadataTooLarge NotCoordinator
        NotEnoughReplicas NotFound NotLeader NotMoving OffsetOutOfRange OutOfOrderSequence
        PenstockError PreferredLeaderUnavailable ProducerFenced RebalanceInProgress
        ShareSessionNotFound ShuttingDown StageFull StageTooLarge StaleMemberEpoch StorageFailed
        TimedOut TopicExists TopicFenced TopicIdMismatch TopicNotFound Unavailable
        UnknownLeaderEpoch UnknownMember UnknownProducer UnreleasedInstanceId
        UnsupportedAssignor UnsupportedBatchFormat UnsupportedCompression
        UnsupportedForTopic UnsupportedVersion WriteExpired WriteNotStaged WriterFenced
    """,
    "penstock.spark": """
        COLUMNS COLUMNS_WITH_HEADERS ClusterAddress OPTIONS QUIET_SETTINGS SINK_OPTIONS
        SPARK_FAILURES
        FetchSettings Option is_gone
        PenstockSource PipelineProgress RecordRange Scope arrow_schema check_pipeline
        deliveries_report hot_keys_report lag_of latency_report open_session read_range
        run_pipeline split_ranges told_error traffic_report
        ArchiveLocation ArchiveService ArchiveServiceSettings ArchiveStatus ArchiveTable
        ArchivedPartitionStatus ArchivedTopicId Compacted Verdict archive_statuses
        Replay compact_archive read_here run_replay verify_archive
        Reshard ReshardPlan ReshardSettings ReshardVerdict
        Switch SwitchNote SwitchOutcome SwitchSettings
    """,
    "penstock.testing": """
        AsyncEmbeddedBroker DriftingClock EmbeddedBroker MachineStopped Schedule SimClock SimDisk
        SimExecutor SimLoop SimMachine SimNetwork SimWires
    """,
}


def names_of(module: ModuleType) -> list[str]:
    """Return the names that a module offers: its list, or all that it defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]


@pytest.mark.parametrize("module", PUBLIC_NAMES)
def test_the_public_names_are_those_that_were_agreed(module: str) -> None:
    names = names_of(importlib.import_module(module))

    assert sorted(names) == sorted(PUBLIC_NAMES[module].split())


@pytest.mark.parametrize("module", PUBLIC_NAMES)
def test_every_public_class_and_function_is_explained(module: str) -> None:
    room = importlib.import_module(module)
    things = [getattr(room, name) for name in names_of(room)]

    assert [thing for thing in things if callable(thing) and not thing.__doc__] == []

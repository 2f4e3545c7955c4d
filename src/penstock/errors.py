"""The whole error taxonomy.

Errors are raised where they are found, with the values in the message. Each protocol translates
them with one table; only clients retry, and only what is `retryable`.
"""

from collections.abc import Mapping
from typing import ClassVar, Self


class PenstockError(Exception):
    """Everything that is raised on purpose."""

    retryable: ClassVar[bool] = False


class InvalidRequest(PenstockError):
    """The caller must change the request."""


class NotFound(PenstockError):
    """There is no such topic, partition, group or message."""


class Conflict(PenstockError):
    """The request lost against newer state."""


class Unavailable(PenstockError):
    """No leader, no quorum, overloaded or timed out: ask again."""

    retryable = True


class Corruption(PenstockError):
    """Stored bytes fail their checksum; a peer repairs them."""


# What callers get wrong.


class InvalidTopicName(InvalidRequest):
    """A topic name breaks the naming rules."""


class InvalidPartitionCount(InvalidRequest):
    """A topic cannot have that number of partitions."""


class InvalidReplication(InvalidRequest):
    """A replication factor or replica assignment cannot be met."""


class InvalidAssignment(InvalidReplication):
    """Replicas are asked for at nodes that cannot have them."""


class InvalidSetting(InvalidRequest):
    """A setting has an unknown name or a value outside its limits."""


class InvalidBatch(InvalidRequest):
    """A record batch is malformed or breaks a rule of its topic."""


class InvalidRecords(InvalidBatch):
    """Records of a batch cannot be stored, so nothing of it is.

    `faults` has what is wrong with each, by its place in the batch.
    """

    def __init__(self, message: str, faults: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.faults = dict(faults or {})

    @classmethod
    def of(cls, faults: Mapping[int, str]) -> Self:
        """Return the error of a batch whose records have these faults; there is one at least."""
        place = min(faults)
        more = f", and {len(faults) - 1} more cannot be stored" if len(faults) > 1 else ""
        return cls(f"record {place} of the batch: {faults[place]}{more}", faults)


class BatchTooLarge(InvalidRequest):
    """A record batch is larger than its topic allows."""


class UnsupportedBatchFormat(InvalidRequest):
    """A record batch is of a format older than version 2."""


class UnsupportedCompression(InvalidRequest):
    """A compression code that nobody defined."""


class BadChecksum(InvalidRequest):
    """A record batch arrived with a checksum that does not match its bytes."""


class InvalidAcks(InvalidRequest):
    """A producer asks for an acknowledgement that does not exist."""


class InvalidTimestamp(InvalidRequest):
    """A record's timestamp is too far from the broker's clock."""


class OffsetOutOfRange(InvalidRequest):
    """An offset lies outside the records that the partition holds."""


class UnsupportedForTopic(InvalidRequest):
    """The operation makes no sense under the topic's settings."""


class InvalidGroupId(InvalidRequest):
    """A consumer group needs a name."""


class InvalidSessionTimeout(InvalidRequest):
    """A session timeout lies outside the configured limits."""


class InvalidSubscription(InvalidRequest):
    """A subscription's regular expression cannot be compiled."""


class UnsupportedAssignor(InvalidRequest):
    """The server-side assignor that a member asks for does not exist."""


class MetadataTooLarge(InvalidRequest):
    """The note stored with a committed offset exceeds its limit."""


class InvalidReceipt(InvalidRequest):
    """A text that is not a receipt."""


class StageTooLarge(InvalidRequest):
    """A write stages more in one partition than is allowed."""


class UnsupportedVersion(InvalidRequest):
    """A protocol version that this node does not speak."""


# What is not there.


class TopicNotFound(NotFound):
    """The topic or the partition does not exist."""


class GroupNotFound(NotFound):
    """The consumer group does not exist."""


class MessageNotFound(NotFound):
    """The message does not exist, or no longer."""


class ShareSessionNotFound(NotFound):
    """The member of a share group has no session at this node."""


class FetchSessionNotFound(NotFound):
    """The fetch session ended or never existed."""


# What lost against newer state.


class TopicExists(Conflict):
    """A topic of that name exists already."""


class NotMoving(Conflict):
    """A move is to be cancelled, and the partition is not being moved."""


class AlreadyLed(Conflict):
    """An election is asked for, and the partition has the leader that it would get."""


class TopicIdMismatch(Conflict):
    """The topic was deleted and created anew since the client learnt its id."""


class DuplicateSequence(Conflict):
    """A producer repeats a batch that is older than those the partition remembers."""


class OutOfOrderSequence(Conflict):
    """A producer skipped a sequence number."""


class UnknownProducer(Conflict):
    """The partition holds no state for this producer."""


class ProducerFenced(Conflict):
    """A newer instance of the producer has taken over."""


class FencedLeaderEpoch(Conflict):
    """The client's leader epoch is older than the partition's."""


class UnknownLeaderEpoch(Conflict):
    """The client's leader epoch is newer than the partition's."""


class InvalidFetchSessionEpoch(Conflict):
    """A fetch session request came out of order."""


class InvalidShareSessionEpoch(Conflict):
    """A request of a share session came out of order."""


class UnknownMember(Conflict):
    """The group does not know this member."""


class IllegalGeneration(Conflict):
    """The member speaks for an older generation of the group."""


class RebalanceInProgress(Conflict):
    """The member must join again: the group is being rebalanced."""


class InconsistentGroupProtocol(Conflict):
    """The member shares no protocol with the rest of the group."""


class MemberIdRequired(Conflict):
    """The member must join again under the id that it has just been given."""

    def __init__(self, message: str, member_id: str) -> None:
        super().__init__(message)
        self.member_id = member_id


class FencedMemberEpoch(Conflict):
    """The member's epoch is not the one that the group gave it."""


class StaleMemberEpoch(Conflict):
    """The member's epoch is older than the one that the group gave it."""


class UnreleasedInstanceId(Conflict):
    """Another live member holds this static instance id."""


class FencedInstanceId(Conflict):
    """A newer member has taken over this static instance id."""


class WriterFenced(Conflict):
    """A newer epoch of the writer is committed."""


class WriteExpired(Conflict):
    """What a run of a writer had staged waited too long for its commit."""


class WriteNotStaged(Conflict):
    """A commit names batches that are not staged, or no longer."""


class LeaseExpired(Conflict):
    """The message is no longer out under this receipt."""


class GroupMaxSizeReached(Conflict):
    """The group has as many members as it may have."""


class GroupNotEmpty(Conflict):
    """The group still has members."""


class GroupSubscribedToTopic(Conflict):
    """Offsets cannot be deleted while the group consumes the topic."""


# What may work in a moment.


class DiskFull(Unavailable):
    """Too little disk is left for new records; reads and commits go on."""


class StorageFailed(Unavailable):
    """The partition's disk failed on this node; another replica may lead."""


class StageFull(Unavailable):
    """Other writes have staged as much in the partition as is allowed."""


class NotLeader(Unavailable):
    """This node does not lead the partition."""


class PreferredLeaderUnavailable(Unavailable):
    """The replica that is meant to lead cannot take over at the moment."""


class EligibleLeadersUnavailable(Unavailable):
    """Nobody leads, and no replica may lead that could lack acknowledged records."""


class TopicFenced(Unavailable):
    """The topic takes no writes for a moment: it is about to get another number of partitions."""


class ArchiveUnavailable(Unavailable):
    """The store that holds an archive does not answer, or turns this client away."""


class NotEnoughReplicas(Unavailable):
    """Too few replicas are in step to accept a write."""


class TimedOut(Unavailable):
    """The request was not answered in its time; its outcome is unknown."""


class CoordinatorLoading(Unavailable):
    """The group's coordinator is still reading its state."""


class NotCoordinator(Unavailable):
    """Another node coordinates this group."""


class ShuttingDown(Unavailable):
    """The node is draining its work before it stops."""


class DataDirectoryInUse(PenstockError):
    """Another process holds the data directory."""


class InvalidConfiguration(PenstockError):
    """One or more options are wrong; the message names all of them."""


class InvalidContext(InvalidConfiguration):
    """A context of the command line is not there, or its file cannot be read."""

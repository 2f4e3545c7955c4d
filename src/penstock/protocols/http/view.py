"""What the HTTP door asks a node."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry

from penstock.broker import (
    Acks,
    ArchivedPartition,
    ClusterStatus,
    Committed,
    DeadLetter,
    DeadLetterFilter,
    EnqueuedTask,
    Exchanged,
    GroupSettings,
    GroupStatus,
    InFlight,
    JournalPage,
    LeasedTask,
    Message,
    Nack,
    NewMessage,
    NewTask,
    NewTopic,
    PartitionStatus,
    Published,
    PublishedRun,
    Purge,
    Record,
    Redrive,
    Reject,
    ResetPlan,
    ResetTarget,
    ReshardStatus,
    Scheduled,
    SettingValue,
    StageBatch,
    StagedRunStatus,
    Statistics,
    TaskStatus,
    Topic,
    TopicFence,
    TopicReceipt,
    TraceStep,
    TypeStatus,
    WriteCommit,
    WriterStatus,
)
from penstock.errors import PenstockError
from penstock.ids import TopicPartition


class CheckView(Protocol):
    """One condition that a ready node fulfils."""

    @property
    def name(self) -> str:
        """A short fixed name, such as `log-recovered`."""

    @property
    def is_passed(self) -> bool:
        """Whether the condition holds at this moment."""

    @property
    def detail(self) -> str:
        """One sentence with the values that decided."""


class OperationsView(Protocol):
    """The cluster of a node, as operators see and change it."""

    async def status(self) -> ClusterStatus:
        """Look at everything."""

    async def partitions(self) -> list[PartitionStatus]:
        """Return all partitions."""

    async def move(self, place: TopicPartition, nodes: list[int]) -> None:
        """Let other nodes replicate a partition; returns when the change has begun."""

    async def cancel_move(self, place: TopicPartition) -> None:
        """Return to the replicas that a partition had before."""

    async def transfer_leader(self, place: TopicPartition, to: int) -> None:
        """Let another replica lead a partition."""

    async def drain(self, node_id: int, *, may_shrink: bool) -> int:
        """Move everything off a node; return how many logs that is."""

    async def end_drain(self, node_id: int) -> None:
        """Let a node take replicas again."""

    async def remove_node(self, node_id: int) -> None:
        """Forget a node that replicates nothing any more."""

    async def balance(self) -> list[str]:
        """Spread the work; name what was done."""


class TopicsView(Protocol):
    """The topics of the cluster, as their owners see and change them."""

    def find(self, name: str) -> Topic:
        """Return a topic, or raise why there is none."""

    async def create(self, new: NewTopic) -> Topic | None:
        """Create a topic."""

    async def delete(self, name: str) -> None:
        """Delete a topic with all its records."""

    async def grow(self, name: str, partitions: int) -> None:
        """Let a topic grow to `partitions`."""

    async def change_settings(
        self, name: str, changed: dict[str, str], removed: list[str], *, dry_run: bool = False
    ) -> None:
        """Set some settings and return others to their default."""

    def settings(self, name: str) -> list[SettingValue]:
        """Return all settings of a topic, given or not."""


class MetadataView(Protocol):
    """What the cluster knows about itself."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""


class MessagesView(Protocol):
    """Messages one by one, on whichever node they are."""

    async def publish(
        self, topic: str, messages: Sequence[NewMessage], *, acks: Acks
    ) -> list[Published | PenstockError]:
        """Publish messages; an error stands where one failed alone."""

    async def publish_values(
        self, topic: str, values: Sequence[bytes], *, acks: Acks
    ) -> list[PublishedRun] | None:
        """Publish messages that are a value each; None when `publish` must look at each."""

    async def read(
        self, place: TopicPartition, *, offset: int, count_max: int, bytes_max: int
    ) -> list[Record]:
        """Return committed records from `offset` on."""

    async def find_offset(self, place: TopicPartition, *, time_ms: int) -> int:
        """Return the offset of the first record at or after a time."""

    async def bounds(self, place: TopicPartition) -> tuple[int, int]:
        """Return the first offset of a partition and the one after its last."""


class QueuesView(Protocol):
    """What consumers of queue groups can do."""

    async def receive(
        self,
        topic: str,
        group: str,
        *,
        count_max: int,
        wait_ms: int,
        lease_ms: int | None,
        consumer: str,
        consumer_in_flight_max: int | None = None,
    ) -> list[Message]:
        """Return messages, waiting up to `wait_ms` for the first."""

    async def ack_and_receive(
        self,
        topic: str,
        group: str,
        receipts: Sequence[str],
        *,
        count_max: int,
        wait_ms: int,
        lease_ms: int | None,
        consumer: str,
    ) -> Exchanged:
        """Ack messages, and receive the next ones."""

    async def receive_any(
        self,
        topics: Sequence[str],
        group: str,
        *,
        count_max: int,
        wait_ms: int,
        lease_ms: int | None,
        consumer: str,
    ) -> list[Message]:
        """The same from several topics."""

    async def ack_and_receive_any(
        self,
        topics: Sequence[str],
        group: str,
        receipts: Sequence[TopicReceipt],
        *,
        count_max: int,
        wait_ms: int,
        lease_ms: int | None,
        consumer: str,
    ) -> Exchanged:
        """Ack messages of any topics, and receive the next ones of several."""

    async def ack(
        self, topic: str, group: str, receipts: Sequence[str]
    ) -> list[PenstockError | None]:
        """Settle messages."""

    async def nack(
        self, topic: str, group: str, items: Sequence[Nack]
    ) -> list[PenstockError | None]:
        """Give messages back."""

    async def extend(
        self, topic: str, group: str, receipts: Sequence[str], *, lease_ms: int
    ) -> list[PenstockError | None]:
        """Let leases end `lease_ms` from now."""

    async def reject(
        self, topic: str, group: str, items: Sequence[Reject]
    ) -> list[PenstockError | None]:
        """Send messages to the dead letters."""

    def settings_of(self, topic: str, group: str) -> GroupSettings:
        """Return how a group hands out messages."""

    async def groups(self, topic: str) -> list[str]:
        """Return the names of a topic's queue groups."""

    async def configure_group(
        self, topic: str, group: str, changed: Mapping[str, str], removed: Sequence[str]
    ) -> GroupSettings:
        """Change settings of a group, creating it where it does not exist."""

    async def status(self, topic: str, group: str) -> GroupStatus:
        """Return how far a group is."""

    async def in_flight(self, topic: str, group: str, *, count_max: int) -> list[InFlight]:
        """Return messages that are out."""

    async def reset_group(
        self,
        topic: str,
        group: str,
        *,
        to: ResetTarget,
        value: int,
        partition: int | None,
        is_dry_run: bool,
    ) -> list[ResetPlan]:
        """Let a group begin anew."""

    async def delete_group(self, topic: str, group: str) -> None:
        """Forget a group."""

    async def trace(self, topic: str, message_id: str) -> list[TraceStep]:
        """Return the steps of a message's life."""

    async def journal(
        self,
        place: TopicPartition,
        *,
        index: int | None,
        since_ms: int | None,
        count_max: int,
    ) -> JournalPage:
        """Return entries of a partition's delivery journal."""


class DeadLettersView(Protocol):
    """What operators can do with dead letters."""

    async def search(
        self,
        topic: str,
        *,
        wanted: DeadLetterFilter,
        count_max: int,
        after: str | None = None,
    ) -> list[DeadLetter]:
        """Return dead letters, from after the one of that id on."""

    async def redrive(
        self,
        topic: str,
        *,
        wanted: DeadLetterFilter,
        to: str | None,
        rate_per_s: float | None,
        count_max: int,
        redrives_max: int,
        is_dry_run: bool,
    ) -> Redrive:
        """Publish dead letters again."""

    async def replace(
        self,
        topic: str,
        letter_id: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> DeadLetter:
        """Put an edited dead letter in the place of another."""

    async def purge(self, topic: str, *, wanted: DeadLetterFilter) -> Purge:
        """Be done with dead letters."""


class TasksView(Protocol):
    """What can be done with tasks."""

    async def enqueue(self, new: NewTask) -> EnqueuedTask:
        """Enqueue a task."""

    async def lease(
        self,
        types: Sequence[str],
        *,
        count_max: int,
        wait_ms: int,
        lease_ms: int | None,
        worker: str,
    ) -> list[LeasedTask]:
        """Return tasks of some types or of any, waiting up to `wait_ms` for the first."""

    async def ack(self, text: str, receipt: str) -> None:
        """Settle a task as done."""

    async def nack(self, text: str, receipt: str, *, delay_ms: int | None, reason: str) -> None:
        """Give a task back."""

    async def give_back(
        self, text: str, receipt: str, *, delay_ms: int | None, reason: str
    ) -> None:
        """Give a task back that was not begun."""

    async def extend(self, text: str, receipt: str, *, lease_ms: int | None) -> None:
        """Let a lease end later."""

    async def status(self, text: str) -> TaskStatus:
        """Return how a task stands."""

    async def stats(self) -> list[TypeStatus]:
        """Return how many tasks of each type are in which state."""

    async def pending(self, types: Sequence[str], *, count_max: int) -> list[TaskStatus]:
        """Return tasks that are queued or leased."""


class ScheduleView(Protocol):
    """Messages that wait for their time."""

    async def list(self, topic: str, *, count_max: int, after: str) -> Sequence[Scheduled]:
        """Return messages in the order of their time, after a cursor."""

    async def count(self, topic: str) -> int:
        """Return how many wait."""

    async def cancel(self, topic: str, ids: Sequence[str]) -> Sequence[PenstockError | None]:
        """Take messages out of the stage for good."""

    async def move(
        self, topic: str, ids: Sequence[str], deliver_at_ms: int
    ) -> Sequence[PenstockError | None]:
        """Give messages another time."""

    async def release(self, topic: str, ids: Sequence[str]) -> Sequence[PenstockError | None]:
        """Let messages be delivered at once."""


class ArchivesView(Protocol):
    """How far the archives of topics are."""

    def topics(self) -> list[Topic]:
        """Return the topics that have an archive."""

    def path_of(self, topic: Topic) -> str:
        """Return where a topic is archived; empty for nowhere."""

    async def partitions(self, topic: Topic) -> list[ArchivedPartition]:
        """Return how far the archive of each partition is."""

    async def report(
        self, topic: Topic, *, topic_id: str, path: str, table: str, offsets: Mapping[int, int]
    ) -> list[ArchivedPartition]:
        """Take note of how far an archive is."""


class ReshardsView(Protocol):
    """The end of reshards."""

    async def status(self, topic: str) -> ReshardStatus:
        """Return how far the reshard of a topic is."""

    async def begin(self, topic: str, reshard_id: uuid.UUID, target: str) -> None:
        """Name the copy that is to take the place of a topic."""

    async def fence(self, topic: str, reshard_id: uuid.UUID) -> TopicFence:
        """Turn writes away, or go on doing so."""

    async def lift(self, topic: str, fence: int) -> None:
        """Let a topic be written to again."""

    async def switch(
        self,
        topic: str,
        reshard_id: uuid.UUID,
        *,
        fence: int,
        former_name: str,
        positions: Mapping[str, Sequence[int]],
    ) -> None:
        """Give the name of a topic to its copy."""

    async def cancel(self, topic: str) -> None:
        """Forget the reshard of a topic and delete its copy."""


class WritesView(Protocol):
    """Writes that are staged first and published together."""

    async def stage(self, batch: StageBatch) -> bool:
        """Keep a batch until its commit; False when the epoch is committed there already."""

    async def staged(self, topic: str) -> list[StagedRunStatus]:
        """Return what is staged in the partitions of a topic."""

    async def commit(self, commit: WriteCommit) -> Committed:
        """Publish what a run has staged, or what was decided for its epoch before."""

    async def abort(self, commit: WriteCommit) -> bool:
        """Let a run never count, and drop what it has staged."""

    async def status(self, home: str, writer: str) -> WriterStatus:
        """Return how far a writer is."""


class NodeView(Protocol):
    """A running node, seen from outside. No method may block."""

    @property
    def node_id(self) -> int:
        """The node's number in its cluster."""

    @property
    def registry(self) -> CollectorRegistry:
        """Everything that the node counts."""

    @property
    def statistics(self) -> Statistics:
        """Where requests and errors of the door are counted."""

    @property
    def metadata(self) -> MetadataView:
        """The cluster's topics."""

    @property
    def topics(self) -> TopicsView:
        """What can be done to topics."""

    @property
    def messages(self) -> MessagesView:
        """What can be done with single messages."""

    @property
    def queues(self) -> QueuesView:
        """What consumers can do."""

    @property
    def tasks(self) -> TasksView:
        """What can be done with tasks."""

    @property
    def dead_letters(self) -> DeadLettersView:
        """What can be done with dead letters."""

    @property
    def schedule(self) -> ScheduleView:
        """What can be done with messages before their time."""

    @property
    def writes(self) -> WritesView:
        """What writers can do."""

    @property
    def archives(self) -> ArchivesView:
        """How far archives are."""

    @property
    def reshards(self) -> ReshardsView:
        """How topics get another number of partitions."""

    @property
    def operations(self) -> OperationsView:
        """What operators can do."""

    def leader_of(self, place: TopicPartition) -> tuple[int, int]:
        """Return the node that leads a partition and its term; -1 while there is none."""

    def now_ms(self) -> int:
        """The node's time."""

    def uptime_s(self) -> float:
        """Seconds since the node started."""

    def checks(self) -> Sequence[CheckView]:
        """All conditions of readiness, passed or not."""

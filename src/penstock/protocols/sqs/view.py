"""What the SQS door asks a node."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.broker import (
    Acks,
    GroupSettings,
    GroupStatus,
    JournalPage,
    Message,
    Nack,
    NewMessage,
    NewTopic,
    Published,
    Scheduled,
    SettingValue,
    Statistics,
    Topic,
)
from penstock.errors import PenstockError
from penstock.ids import TopicPartition


class TopicsView(Protocol):
    """Topics, which are queues."""

    def find(self, name: str) -> Topic:
        """Return a topic, or raise `TopicNotFound`."""

    async def create(self, new: NewTopic) -> Topic | None:
        """Create a topic."""

    async def delete(self, name: str) -> None:
        """Delete a topic with all its records."""

    async def change_settings(
        self,
        name: str,
        changed: dict[str, str],
        removed: list[str],
        *,
        expected: dict[str, str | None] | None = None,
    ) -> None:
        """Set some settings and return others to their default.

        Raises `Conflict` when a setting is not as expected, because another was faster.
        """

    def settings(self, name: str) -> list[SettingValue]:
        """Return all settings of a topic, given or not."""


class MetadataView(Protocol):
    """What the cluster knows about itself."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""


class MessagesView(Protocol):
    """Publishing."""

    async def publish(
        self, topic: str, messages: Sequence[NewMessage], *, acks: Acks = "all"
    ) -> list[Published | PenstockError]:
        """Publish messages; an error stands where one failed alone."""

    async def bounds(self, place: TopicPartition) -> tuple[int, int]:
        """Return the first offset of a partition and the one after its last."""


class QueuesView(Protocol):
    """Receiving."""

    async def receive(
        self,
        topic: str,
        group: str,
        *,
        count_max: int,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        consumer: str = "",
    ) -> list[Message]:
        """Return messages, waiting for the first."""

    async def receive_or_fail(
        self, topic: str, group: str, *, count_max: int, lease_ms: int, consumer: str
    ) -> Sequence[Message]:
        """Receive what is there; nothing is the word of all partitions, and raised otherwise."""

    async def ack(
        self, topic: str, group: str, receipts: Sequence[str]
    ) -> list[PenstockError | None]:
        """Settle messages."""

    async def ack_late(
        self, topic: str, group: str, receipts: Sequence[str]
    ) -> list[PenstockError | None]:
        """The same, also for messages whose lease has ended and that nobody has got since."""

    async def nack(
        self, topic: str, group: str, items: Sequence[Nack]
    ) -> list[PenstockError | None]:
        """Give messages back."""

    async def extend(
        self, topic: str, group: str, receipts: Sequence[str], *, lease_ms: int
    ) -> list[PenstockError | None]:
        """Move deadlines."""

    async def configure_group(self, topic: str, group: str, changed: Mapping[str, str]) -> object:
        """Make sure that a group exists."""

    def settings_of(self, topic: str, group: str) -> GroupSettings:
        """Return the settings that a group has, or would have."""

    async def status(self, topic: str, group: str) -> GroupStatus:
        """Return how far a group is, or raise `GroupNotFound`."""

    async def journal(
        self, place: TopicPartition, *, index: int | None = None, since_ms: int | None = None
    ) -> JournalPage:
        """Return what has happened to messages of a partition, from an index or a time on."""

    async def purge(self, topic: str, group: str) -> object:
        """Be done with everything that is there."""


class ScheduleView(Protocol):
    """Messages whose time has not come."""

    async def count(self, topic: str) -> int:
        """How many there are."""

    async def clear(self, topic: str) -> int:
        """Cancel all of them."""

    async def list(
        self, topic: str, *, count_max: int = 100, after: str = ""
    ) -> Sequence[Scheduled]:
        """Return some in the order of their time, after a cursor."""

    async def move(
        self, topic: str, ids: Sequence[str], deliver_at_ms: int
    ) -> Sequence[PenstockError | None]:
        """Give messages another time; one that has passed releases them."""


class SqsView(Protocol):
    """A running node."""

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
    def schedule(self) -> ScheduleView:
        """What is to be delivered later."""

    @property
    def node_id(self) -> int:
        """The node's number."""

    @property
    def statistics(self) -> Statistics:
        """Where requests and errors of the door are counted."""

    def leader_of(self, place: TopicPartition) -> tuple[int, int]:
        """Return the node that leads a partition, or -1, and its term."""

    def now_ms(self) -> int:
        """The node's time."""

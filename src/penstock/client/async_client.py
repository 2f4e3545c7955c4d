"""The face of the client for event loops; it does what the blocking one does."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from penstock.client.buffers import BufferLimits
from penstock.client.calls import Call
from penstock.client.client import LEASE_S, POLL_WAIT_S, raise_refusal
from penstock.client.dead_letters import AsyncDeadLetters
from penstock.client.deliveries import (
    GIVEN_BACK,
    Exchange,
    Leased,
    LeasedMessage,
    ReceiveOptions,
    Refusal,
    SettleIncomplete,
    exchange_call,
    receive_call,
    settle_calls,
)
from penstock.client.http import URL_DEFAULT
from penstock.client.journals import PAGE_ENTRIES, JournalPage, JournalStart, journal_call
from penstock.client.producers import AsyncBufferedProducer
from penstock.client.publications import (
    Acks,
    IdempotencyKeys,
    Publication,
    Published,
    PublishIncomplete,
    PublishOptions,
    publish_call,
)
from penstock.client.queue_groups import AsyncQueueGroups, TraceStep, trace_call
from penstock.client.retries import Route
from penstock.client.schedule import AsyncSchedule
from penstock.client.streams import StreamCaller
from penstock.client.subscriptions import AsyncLeaseKeeper, AsyncSubscription
from penstock.client.tasks import AsyncTaskQueue
from penstock.client.topics import (
    TopicDetails,
    TopicSummary,
    alter_topic_call,
    create_topic_call,
    delete_topic_call,
    list_topics_call,
    topic_call,
)
from penstock.errors import PenstockError

L = TypeVar("L", bound=Leased)


class AsyncClient:
    """Speaks to a cluster through any of its nodes.

    `url` names one node or several, as a list or separated by commas; when one fails, the next is
    asked. Calls whose error may pass are repeated for up to `retry_s`, where repeating does no
    harm. Every wait for an answer ends after `wait_s`.

    Messages without an idempotency key are given one, so that a publish can be repeated. Unless
    `is_idempotent`, they are published without: that is less work for the node, and a publish whose
    outcome is not known raises.
    """

    def __init__(
        self,
        url: str | Sequence[str] = URL_DEFAULT,
        *,
        wait_s: float = 30.0,
        retry_s: float = 15.0,
        is_idempotent: bool = True,
    ) -> None:
        self._caller = StreamCaller(Route(url, retry_s=retry_s), wait_s=wait_s)
        self.tasks = AsyncTaskQueue(self._caller)
        self.groups = AsyncQueueGroups(self._caller)
        self.dead_letters = AsyncDeadLetters(self._caller)
        self.schedule = AsyncSchedule(self._caller)
        self._keys = IdempotencyKeys() if is_idempotent else None
        self._keeper: AsyncLeaseKeeper = AsyncLeaseKeeper(self._extend_all)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the renewal of leases and close all connections."""
        await self._keeper.close()
        await self._caller.close()

    # Publishing.

    async def publish(
        self, topic: str, value: Any, *, acks: Acks = "all", **options: Unpack[PublishOptions]
    ) -> Published:
        """Publish one message; it is committed when this returns, unless `acks` says otherwise."""
        publication = Publication(value=value, **options)
        (result,) = await self.publish_batch(topic, [publication], acks=acks)
        if isinstance(result, PenstockError):
            raise result
        return result

    async def publish_batch(
        self, topic: str, publications: Sequence[Publication], *, acks: Acks = "all"
    ) -> list[Published | PenstockError]:
        """Publish messages; the results are in their order, an error where one failed alone."""
        keys = self._keys
        keyed = [keys.keyed(each, topic) for each in publications] if keys else publications
        try:
            return await self._caller.run(publish_call(topic, keyed, acks))
        except PublishIncomplete as error:
            return error.results

    def producer(
        self, topic: str, *, acks: Acks = "all", limits: BufferLimits | None = None
    ) -> AsyncBufferedProducer:
        """Return a producer that collects messages into batches."""

        async def publish(publications: Sequence[Publication]) -> list[Published | PenstockError]:
            return await self.publish_batch(topic, publications, acks=acks)

        return AsyncBufferedProducer(publish, limits or BufferLimits())

    # Receiving.

    async def receive(
        self,
        topic: str | Sequence[str],
        group: str,
        *,
        wait_s: float = 0.0,
        **options: Unpack[ReceiveOptions],
    ) -> list[LeasedMessage]:
        """Return messages, waiting up to `wait_s` for the first; none is a normal answer."""
        topics = [topic] if isinstance(topic, str) else topic
        return await self._caller.run(receive_call(topics, group, wait_s=wait_s, options=options))

    async def ack_and_receive(
        self,
        topic: str | Sequence[str],
        group: str,
        done: Sequence[L],
        *,
        wait_s: float = 0.0,
        **options: Unpack[ReceiveOptions],
    ) -> Exchange[L]:
        """Settle messages of a group and receive the next ones in one request.

        The acks are durable when this returns. Messages that were received for another group are
        refused before anything is sent.
        """
        if not done:
            found = await self.receive(topic, group, wait_s=wait_s, **options)
            return Exchange(found, [])
        topics = [topic] if isinstance(topic, str) else topic
        call = exchange_call(topics, group, done, wait_s=wait_s, options=options)
        self._keeper.drop(done)
        return await self._caller.run(call)

    def subscribe(
        self,
        topic: str | Sequence[str],
        group: str,
        *,
        lease_s: float = LEASE_S,
        count_max: int = 10,
        consumer: str = "",
    ) -> AsyncSubscription[LeasedMessage]:
        """Return a loop over messages whose leases are renewed until they are settled here."""

        async def receive() -> list[LeasedMessage]:
            return await self.receive(
                topic,
                group,
                wait_s=POLL_WAIT_S,
                lease_s=lease_s,
                count_max=count_max,
                consumer=consumer,
            )

        return AsyncSubscription(receive, self._keeper, self._give_back, lease_s=lease_s)

    async def ack(self, message: Leased) -> None:
        """Settle a message for good; durable when this returns."""
        raise_refusal(await self.ack_batch([message]))

    async def nack(
        self, message: Leased, *, delay_s: float | None = None, reason: str = ""
    ) -> None:
        """Give a message back: it rests, or goes to the dead letters after its last attempt."""
        raise_refusal(await self.nack_batch([message], delay_s=delay_s, reason=reason))

    async def give_back(self, message: Leased, *, reason: str = "") -> None:
        """Give a message back that was not begun: it costs no attempt, and comes again at once."""
        raise_refusal(await self.give_back_batch([message], reason=reason))

    async def extend(self, message: Leased, *, lease_s: float | None = None) -> None:
        """Keep a message for `lease_s` from now on, or for as long as its group says."""
        raise_refusal(await self.extend_batch([message], lease_s=lease_s))

    async def reject(self, message: Leased, *, reason: str = "") -> None:
        """Send a message to the dead letters at once."""
        raise_refusal(await self.reject_batch([message], reason=reason))

    async def ack_batch(self, messages: Sequence[L]) -> list[Refusal[L]]:
        """Settle messages; return those whose receipt was not accepted."""
        return await self._settle("ack", messages)

    async def nack_batch(
        self, messages: Sequence[L], *, delay_s: float | None = None, reason: str = ""
    ) -> list[Refusal[L]]:
        """Give messages back; return those whose receipt was not accepted."""
        return await self._settle("nack", messages, delay=delay_s, reason=reason)

    async def give_back_batch(self, messages: Sequence[L], *, reason: str = "") -> list[Refusal[L]]:
        """Give messages back that were not begun; return those whose receipt was not accepted."""
        return await self._settle("nack", messages, reason=reason, uncounted=True)

    async def extend_batch(
        self, messages: Sequence[L], *, lease_s: float | None = None
    ) -> list[Refusal[L]]:
        """Keep messages for longer; return those whose receipt was not accepted."""
        return await self._run_all(settle_calls("extend", messages, lease=lease_s))

    async def reject_batch(self, messages: Sequence[L], *, reason: str = "") -> list[Refusal[L]]:
        """Send messages to the dead letters; return those whose receipt was not accepted."""
        return await self._settle("reject", messages, reason=reason)

    async def _settle(
        self, verb: str, messages: Sequence[L], **details: object
    ) -> list[Refusal[L]]:
        # First, so that a lease is not renewed behind the back of the answer.
        self._keeper.drop(messages)
        return await self._run_all(settle_calls(verb, messages, **details))

    async def _run_all(self, calls: Sequence[Call[list[Refusal[L]]]]) -> list[Refusal[L]]:
        refusals: list[Refusal[L]] = []
        for call in calls:
            try:
                refused = await self._caller.run(call)
                refusals += refused
            except SettleIncomplete as error:
                refusals += error.refusals
        return refusals

    async def _extend_all(
        self, messages: Sequence[Leased], lease_s: float
    ) -> list[Refusal[Leased]]:
        return await self.extend_batch(messages, lease_s=lease_s)

    async def _give_back(self, messages: Sequence[LeasedMessage]) -> None:
        await self.give_back_batch(messages, reason=GIVEN_BACK)

    async def trace(self, topic: str, message_id: str) -> list[TraceStep]:
        """Return what happened to a message, in the order of the log."""
        return await self._caller.run(trace_call(topic, message_id))

    async def journal(
        self,
        topic: str,
        partition: int,
        *,
        index: int | None = None,
        since_ms: int | None = None,
        count_max: int = PAGE_ENTRIES,
    ) -> JournalPage:
        """Return what happened to the messages of a partition, from an entry or a time on.

        Without either, it begins with the oldest entry.
        """
        start = JournalStart(index=index, since_ms=since_ms)
        call = journal_call(topic, partition, start, count_max=count_max)
        return await self._caller.run(call)

    # Topics.

    async def topics(self) -> list[TopicSummary]:
        """Return all topics, by name."""
        return await self._caller.run(list_topics_call())

    async def topic(self, name: str) -> TopicDetails:
        """Return one topic with its partitions and settings."""
        return await self._caller.run(topic_call(name))

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> TopicDetails:
        """Create a topic; what is left out follows the node's options."""
        call = create_topic_call(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            settings=settings,
        )
        return await self._caller.run(call)

    async def alter_topic(
        self,
        name: str,
        *,
        settings: Mapping[str, str | None] | None = None,
        partitions: int | None = None,
    ) -> TopicDetails:
        """Change settings, or return them to their default by None, and add partitions."""
        call = alter_topic_call(name, settings=settings or {}, partitions=partitions)
        return await self._caller.run(call)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        await self._caller.run(delete_topic_call(name))

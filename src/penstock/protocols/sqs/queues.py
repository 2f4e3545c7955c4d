"""Queues as a whole: create, find, list, look at, change, purge and delete them; tags."""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from penstock.broker import (
    ATTRIBUTES_SETTING,
    GROUP_SCOPE,
    QUEUE_CHOICES,
    QUEUE_CREATED,
    QUEUE_MODIFIED,
    QUEUE_NUMBERS,
    QUEUE_SETTABLE,
    TAGS_SETTING,
    NewTopic,
    Topic,
    check_tags,
    is_queue_attribute,
    kept_texts,
    read_redrive_policy,
)
from penstock.errors import (
    Conflict,
    GroupNotFound,
    InvalidSetting,
    TopicExists,
    TopicNotFound,
    Unavailable,
)
from penstock.ids import TopicPartition
from penstock.protocols.sqs.delays import apply_delay
from penstock.protocols.sqs.errors import SqsError
from penstock.protocols.sqs.names import name_in_url, queue_arn, queue_url
from penstock.protocols.sqs.options import SqsOptions
from penstock.protocols.sqs.parameters import map_of, number_of, optional_text, text_of, texts_of
from penstock.protocols.sqs.queue_attributes import (
    FIFO_SUFFIX,
    READ_ONLY,
    allows_redrive,
    attributes_of_topic,
    check_attributes,
    check_queue_name,
    check_throughput,
    default_of,
    new_topic_settings,
    topic_settings,
    wider_batches,
)
from penstock.protocols.sqs.view import SqsView

GROUP = "sqs"
_LIST_MAX = 1_000
# Settings of a topic that hold more than one thing.
_WHOLES = (ATTRIBUTES_SETTING, TAGS_SETTING)
_CHANGE_ATTEMPTS_MAX = 100
_CHANGE_PAUSE_S = 0.02


class Queue:
    """A topic as a queue: its name and attributes.

    What is kept and cannot be an attribute counts for nothing.
    """

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.name = topic.name
        self.attributes = {
            name: value
            for name, value in kept_texts(topic.settings, ATTRIBUTES_SETTING).items()
            if is_queue_attribute(name, value)
        }
        self.tags = kept_texts(topic.settings, TAGS_SETTING)

    @property
    def is_fifo(self) -> bool:
        """True for queues that keep the order of message groups."""
        return self.name.endswith(FIFO_SUFFIX)

    @property
    def dead_letter_queue(self) -> str | None:
        """The name of the queue that its dead letters go to; None when it names none."""
        policy = read_redrive_policy(self.attributes.get("RedrivePolicy", ""))
        return None if policy is None else policy.dead_letter_queue

    @property
    def deduplicates_in_groups(self) -> bool:
        """True when each message group is deduplicated by itself; else the queue as a whole is."""
        return self.attributes.get("DeduplicationScope") == GROUP_SCOPE

    def number(self, name: str) -> int:
        """Return a numeric attribute, given or not."""
        return int(self.attributes.get(name, QUEUE_NUMBERS[name].default))

    def is_on(self, name: str) -> bool:
        """Return a switch; those that were not given are off."""
        return self.attributes.get(name) == "true"


class QueueActions:
    """The actions on queues as a whole."""

    def __init__(self, view: SqsView, options: SqsOptions) -> None:
        self._view = view
        self._options = options
        self._purged_ms: dict[uuid.UUID, int] = {}

    # Finding.

    def find(self, name: str) -> Queue:
        """Return a queue, or raise that there is none."""
        try:
            return Queue(self._view.topics.find(name))
        except TopicNotFound:
            raise SqsError(
                SqsError.QUEUE_MISSING, f"The specified queue {name[:90]!r} does not exist."
            ) from None

    def of(self, parameters: Mapping[str, Any]) -> Queue:
        """Return the queue that a call names by its url."""
        return self.find(name_in_url(text_of(parameters, "QueueUrl")))

    async def get_url(self, parameters: Mapping[str, Any], base_url: str) -> dict[str, Any]:
        """GetQueueUrl."""
        queue = self.find(text_of(parameters, "QueueName"))
        return {"QueueUrl": queue_url(base_url, self._options.account, queue.name)}

    async def list(self, parameters: Mapping[str, Any], base_url: str) -> dict[str, Any]:
        """ListQueues."""
        prefix = optional_text(parameters, "QueueNamePrefix") or ""
        names = [name for name in self._view.metadata.topics if name.startswith(prefix)]
        return self._page("QueueUrls", names, parameters, base_url)

    def _page(
        self, field: str, names: Iterable[str], parameters: Mapping[str, Any], base_url: str
    ) -> dict[str, Any]:
        """Answer with the addresses of as many queues as are asked for, from the next one on."""
        after = optional_text(parameters, "NextToken") or ""
        count_max = number_of(parameters, "MaxResults", least=1, most=_LIST_MAX)
        left = sorted(name for name in names if name > after)
        shown = left[: count_max or _LIST_MAX]
        answer: dict[str, Any] = {
            field: [queue_url(base_url, self._options.account, name) for name in shown]
        }
        if count_max is not None and len(left) > count_max:
            answer["NextToken"] = shown[-1]
        return answer

    # Changing.

    async def create(self, parameters: Mapping[str, Any], base_url: str) -> dict[str, Any]:
        """CreateQueue; the same queue twice is no error."""
        name = text_of(parameters, "QueueName")
        given = map_of(parameters, "Attributes")
        tags = map_of(parameters, "tags") or map_of(parameters, "Tags")
        is_fifo = given.get("FifoQueue", "false").lower() == "true"
        check_queue_name(name, is_fifo=is_fifo)
        attributes = check_attributes(given, is_fifo=is_fifo)
        check_throughput(attributes)
        self._check_dead_letters(name, attributes)
        now_s = str(self._view.now_ms() // 1_000)
        settings = new_topic_settings(attributes, is_fifo=is_fifo)
        size = {"MaximumMessageSize": default_of("MaximumMessageSize")} | attributes
        settings |= wider_batches(size, batch_bytes_max=self._options.batch_bytes_max)
        settings |= _kept(attributes | {QUEUE_CREATED: now_s, QUEUE_MODIFIED: now_s})
        if tags:
            settings |= _kept_tags(tags)
        is_spread = not is_fifo or attributes.get("DeduplicationScope") == GROUP_SCOPE
        # Duplicates are known within a partition.
        partitions = -1 if is_spread else 1
        try:
            await self._view.topics.create(NewTopic(name, partitions=partitions, settings=settings))
        except TopicExists:
            self._check_same(self.find(name), attributes)
        return {"QueueUrl": queue_url(base_url, self._options.account, name)}

    def _check_same(self, queue: Queue, attributes: Mapping[str, str]) -> None:
        shown = self._shown(queue)
        for name, value in attributes.items():
            if shown.get(name, default_of(name)) != value:
                raise _differs(f"attribute {name}")
        if not queue.is_fifo:
            return
        # A topic of such a name that was made elsewhere does not keep what the name promises.
        if self._topic_settings(queue)["delivery.order"] == "parallel":
            raise _differs("attribute FifoQueue: its topic has the delivery.order parallel")
        if queue.topic.partitions > 1 and not queue.deduplicates_in_groups:
            raise _differs(
                "attribute DeduplicationScope: duplicates are known within a partition, and its"
                f" topic has {queue.topic.partitions}"
            )

    def _check_dead_letters(self, name: str, attributes: Mapping[str, str]) -> None:
        policy = read_redrive_policy(attributes.get("RedrivePolicy", ""))
        if policy is None:
            return
        if policy.dead_letter_queue == name:
            raise SqsError(
                SqsError.INVALID_PARAMETER, f"{name} cannot be the dead-letter queue of itself"
            )
        if policy.dead_letter_queue not in self._view.metadata.topics:
            # Not the error of a missing queue: tools would take it for the one that they set up.
            raise SqsError(
                SqsError.INVALID_PARAMETER,
                f"Value {attributes['RedrivePolicy'][:200]} for parameter RedrivePolicy is invalid."
                " Reason: Dead letter target does not exist.",
            )
        target = self.find(policy.dead_letter_queue)
        if target.is_fifo != name.endswith(FIFO_SUFFIX):
            raise SqsError(
                SqsError.INVALID_PARAMETER,
                "The dead-letter queue must be of the same type as its source",
            )
        allowed = target.attributes.get("RedriveAllowPolicy", "")
        if not allows_redrive(allowed, queue_arn(self._options, name)):
            raise SqsError(
                SqsError.INVALID_PARAMETER,
                f"Queue {target.name} does not take dead letters of {name}: its RedriveAllowPolicy"
                " says so",
            )

    async def set_attributes(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """SetQueueAttributes."""
        queue = self.of(parameters)
        given = check_attributes(map_of(parameters, "Attributes"), is_fifo=queue.is_fifo)
        if "FifoQueue" in given and (given["FifoQueue"] == "true") != queue.is_fifo:
            raise SqsError(SqsError.INVALID_ATTRIBUTE_NAME, "FifoQueue cannot be changed")
        _check_scope(queue, given)
        self._check_dead_letters(queue.name, given)
        await self._change(queue, lambda found: self._with_attributes(found, given))
        if queue.is_fifo and "DelaySeconds" in given:
            await apply_delay(self._view, queue.name, int(given["DelaySeconds"]))
        return {}

    def _with_attributes(self, queue: Queue, given: dict[str, str]) -> dict[str, str]:
        if not QUEUE_CHOICES.keys().isdisjoint(given):
            check_throughput(queue.attributes | given)
        now_s = str(self._view.now_ms() // 1_000)
        changed = topic_settings(given) | _kept(queue.attributes | given | {QUEUE_MODIFIED: now_s})
        batch_bytes_max = int(self._topic_settings(queue)["max.message.bytes"])
        return changed | wider_batches(given, batch_bytes_max=batch_bytes_max)

    async def _change(self, queue: Queue, changed: Callable[[Queue], dict[str, str]]) -> None:
        """Change settings that hold several things; what others change meanwhile is kept."""
        for _ in range(_CHANGE_ATTEMPTS_MAX):
            settings = changed(queue)
            given = queue.topic.settings
            expected = {name: given.get(name) for name in _WHOLES if name in settings}
            try:
                await self._view.topics.change_settings(queue.name, settings, [], expected=expected)
            except Conflict:
                # This node may have to hear of the other change first.
                await asyncio.sleep(_CHANGE_PAUSE_S)
                queue = self.find(queue.name)
            else:
                return
        raise Unavailable(f"queue {queue.name} is being changed by many at the same time")

    async def delete(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """DeleteQueue."""
        await self._view.topics.delete(self.of(parameters).name)
        return {}

    async def purge(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """PurgeQueue, at most once in a while."""
        queue = self.of(parameters)
        now_ms = self._view.now_ms()
        self._forget_purges(now_ms - self._options.purge_interval_ms)
        if queue.topic.topic_id in self._purged_ms:
            raise SqsError(
                SqsError.PURGE_IN_PROGRESS,
                f"Only one PurgeQueue operation on {queue.name} is allowed every"
                f" {self._options.purge_interval_ms // 1_000} seconds.",
            )
        self._purged_ms[queue.topic.topic_id] = now_ms
        # First, as a message that is just being released is in the queue then.
        await self._view.schedule.clear(queue.name)
        await self._view.queues.configure_group(queue.name, GROUP, {})
        await self._view.queues.purge(queue.name, GROUP)
        return {}

    def _forget_purges(self, before_ms: int) -> None:
        purged = self._purged_ms.items()
        self._purged_ms = {queue: at_ms for queue, at_ms in purged if at_ms > before_ms}

    # Looking.

    async def get_attributes(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """GetQueueAttributes."""
        queue = self.of(parameters)
        names = texts_of(parameters, "AttributeNames")
        unknown = [name for name in names if name not in QUEUE_SETTABLE | READ_ONLY | {"All"}]
        if unknown:
            raise SqsError(SqsError.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {unknown[0][:80]}.")
        if not names:
            return {}
        shown = self._shown(queue) | await self._counts(queue)
        return {
            "Attributes": {
                name: value for name, value in shown.items() if "All" in names or name in names
            }
        }

    def _shown(self, queue: Queue) -> dict[str, str]:
        defaults = {
            name: str(limits.default)
            for name, limits in QUEUE_NUMBERS.items()
            if name != "KmsDataKeyReusePeriodSeconds"
        }
        shown = defaults | {"SqsManagedSseEnabled": "false"} | queue.attributes
        shown |= self._set_for_topic(queue)
        if queue.is_fifo:
            shown = {
                "FifoQueue": "true",
                "ContentBasedDeduplication": "false",
                "DeduplicationScope": "queue",
                "FifoThroughputLimit": "perQueue",
            } | shown
        else:
            shown.pop("FifoQueue", None)
        for name in (QUEUE_CREATED, QUEUE_MODIFIED):
            shown.setdefault(name, "0")
        return shown | {"QueueArn": queue_arn(self._options, queue.name)}

    def _set_for_topic(self, queue: Queue) -> dict[str, str]:
        settings = self._topic_settings(queue)
        return attributes_of_topic(
            lease_ms=self._view.queues.settings_of(queue.name, GROUP).lease_ms,
            retention_ms=int(settings["retention.ms"]),
            batch_bytes_max=int(settings["max.message.bytes"]),
            message_bytes_max=queue.number("MaximumMessageSize"),
        )

    def _topic_settings(self, queue: Queue) -> dict[str, str]:
        settings = self._view.topics.settings(queue.name)
        return {each.definition.name: each.value for each in settings}

    async def _counts(self, queue: Queue) -> dict[str, str]:
        unsettled, in_flight = await self.backlog(queue)
        delayed = await self._view.schedule.count(queue.name)
        return {
            "ApproximateNumberOfMessages": str(max(0, unsettled - in_flight)),
            "ApproximateNumberOfMessagesNotVisible": str(in_flight),
            "ApproximateNumberOfMessagesDelayed": str(delayed),
        }

    async def backlog(self, queue: Queue) -> tuple[int, int]:
        """Return how many messages are not deleted, and how many of these are in flight."""
        try:
            status = await self._view.queues.status(queue.name, GROUP)
        except GroupNotFound:
            # Nobody has received yet, so everything that the topic holds is waiting.
            places = [TopicPartition(queue.name, n) for n in range(queue.topic.partitions)]
            bounds = [await self._view.messages.bounds(place) for place in places]
            return sum(end - start for start, end in bounds), 0
        return status.unsettled, status.in_flight

    async def list_dead_letter_sources(
        self, parameters: Mapping[str, Any], base_url: str
    ) -> dict[str, Any]:
        """ListDeadLetterSourceQueues."""
        target = self.of(parameters)
        names = [
            topic.name
            for topic in self._view.metadata.topics.values()
            if Queue(topic).dead_letter_queue == target.name
        ]
        return self._page("queueUrls", names, parameters, base_url)

    # Tags and permissions.

    async def tag(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """TagQueue."""
        queue = self.of(parameters)
        given = map_of(parameters, "Tags")
        await self._change(queue, lambda found: _kept_tags(found.tags | given))
        return {}

    async def untag(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """UntagQueue."""
        queue = self.of(parameters)
        gone = texts_of(parameters, "TagKeys")

        def without(found: Queue) -> dict[str, str]:
            return _kept_tags({key: found.tags[key] for key in found.tags if key not in gone})

        await self._change(queue, without)
        return {}

    async def list_tags(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """ListQueueTags."""
        tags = self.of(parameters).tags
        return {"Tags": tags} if tags else {}

    async def accept_permission(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """AddPermission and RemovePermission: accepted, for scripts that set them."""
        self.of(parameters)
        text_of(parameters, "Label")
        return {}


def _differs(what: str) -> SqsError:
    return SqsError(
        SqsError.QUEUE_EXISTS,
        f"A queue already exists with the same name and a different value for {what}",
    )


def _check_scope(queue: Queue, given: Mapping[str, str]) -> None:
    if given.get("DeduplicationScope") == "queue" and queue.topic.partitions > 1:
        raise SqsError(
            SqsError.INVALID_ATTRIBUTE_VALUE,
            f"DeduplicationScope cannot be queue: duplicates are known within a partition, and"
            f" {queue.name} has {queue.topic.partitions}",
        )


def _kept(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that keeps attributes; an empty one is the same as none."""
    kept = {name: value for name, value in attributes.items() if value}
    return {ATTRIBUTES_SETTING: msgspec.json.encode(kept).decode()}


def _kept_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that keeps tags."""
    try:
        check_tags(tags)
    except InvalidSetting as error:
        raise SqsError(SqsError.INVALID_PARAMETER, str(error)) from None
    return {TAGS_SETTING: msgspec.json.encode(dict(tags)).decode()}

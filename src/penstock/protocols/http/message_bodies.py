"""The JSON of messages: published, received, settled.

What comes by the thousand is hidden from the garbage collector: nothing in it points back.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from penstock.protocols.http.answers import Failure
from penstock.protocols.http.contents import Encoding

Duration = Annotated[
    str | float,
    Meta(description="Seconds, or a text with a unit: 500ms, 30s, 5m, 2h, 7d."),
]
Wait = Annotated[
    Duration,
    Meta(description="For the first one, up to 60 s; seconds, or a text such as 500ms or 20s."),
]
Moment = Annotated[
    str | float, Meta(description="Milliseconds since 1970, or a date and time in ISO 8601.")
]
Acks = Annotated[
    Literal["none", "leader", "all"],
    Meta(description="Answered at once, when the leader has it, or when a majority has it."),
]


class MessageBody(Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A message to be published."""

    value: Annotated[
        Any, Meta(description="A string is stored as text, other JSON compact; null is nothing.")
    ] = None
    encoding: Annotated[
        Encoding, Meta(description="`base64` when `value` is bytes written so.")
    ] = "text"
    key: Annotated[str | None, Meta(description="Messages of one key keep their order.")] = None
    key_encoding: Encoding = "text"
    headers: Annotated[dict[str, str | None] | None, Meta(description="Text by name.")] = None
    partition: Annotated[
        Annotated[int, Meta(ge=0, lt=2**31)] | None,
        Meta(description="By the key if left out, or else in turns."),
    ] = None
    timestamp: Annotated[
        Moment | None, Meta(description="The time that the record carries; now if left out.")
    ] = None
    priority: Annotated[
        int | str, Meta(description="0 to 9, or low (1), normal (4), high (7).")
    ] = 4
    delay: Annotated[Duration | None, Meta(description="It comes after this time.")] = None
    deliver_at: Annotated[Moment | None, Meta(description="It comes at this time.")] = None
    ttl: Annotated[
        Duration | None,
        Meta(description="Queue groups do not receive it after this time, from when it comes."),
    ] = None
    idempotency_key: Annotated[
        str | None,
        Meta(description="A second message with this key is not stored, within five minutes."),
    ] = None


class PublishBody(MessageBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message, and when its publisher is answered."""

    acks: Acks = "all"


class PublishBatchBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages, each of which succeeds or fails by itself."""

    messages: Annotated[list[MessageBody], Meta(min_length=1, max_length=10_000)]
    acks: Acks = "all"


class RawBatchBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `PublishBatchBody` whose messages are still to be looked at, one by one."""

    messages: list[Raw]
    acks: Acks = "all"


class ValueBody(Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A message to be published that is a text and nothing else."""

    value: str


class ValuesBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `PublishBatchBody` of such messages, as most large ones are."""

    messages: list[ValueBody]
    acks: Acks = "all"


class PublishedMessage(Struct, frozen=True, gc=False, kw_only=True):
    """Where a message went, or why it did not."""

    id: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: (
        Annotated[int | None, Meta(description="Null until a scheduled message is due.")]
        | UnsetType
    ) = UNSET
    timestamp: int | UnsetType = UNSET
    deliver_at: int | UnsetType = UNSET
    duplicate: (
        Annotated[bool, Meta(description="True when its idempotency key was published before.")]
        | UnsetType
    ) = UNSET
    error: Failure | UnsetType = UNSET


class PublishedBatch(Struct, frozen=True, kw_only=True):
    """One result for each message, in their order."""

    results: list[PublishedMessage]
    failed: int


class ReceiveBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many messages, how long to wait for the first, and for how long they are out."""

    max: Annotated[int, Meta(ge=1, le=10_000)] = 10
    wait: Wait = 0
    lease: Annotated[
        Duration | None, Meta(description="Up to 12 h; the group's own if left out.")
    ] = None
    consumer: Annotated[
        str, Meta(max_length=200, description="Who receives, for those who look at the group.")
    ] = ""


class ExchangeBody(ReceiveBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, in exchange for messages that are done."""

    ack: Annotated[
        list[str],
        Meta(max_length=10_000, description="Receipts of messages that are done."),
    ] = []


class TopicReceiptBody(Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A message of one of several topics, by the two fields that it came with."""

    topic: str
    receipt: str


class ExchangeAnyBody(ReceiveBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same from several topics, in exchange for messages of any."""

    topics: Annotated[list[str], Meta(min_length=1, max_length=100)]
    ack: Annotated[
        list[TopicReceiptBody],
        Meta(max_length=10_000, description="Topics and receipts of messages that are done."),
    ] = []


class ReceivedMessage(Struct, frozen=True, gc=False):
    """A message that is out with its receiver until `lease_until`."""

    id: str
    receipt: str
    attempt: int
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: dict[str, str | None]
    priority: int
    lease_until: int
    encoding: Encoding | UnsetType = UNSET
    key_encoding: Encoding | UnsetType = UNSET
    raw_headers: (
        Annotated[
            list[tuple[str, str | None]],
            Meta(description="Names and base64, where a header repeats or is not text."),
        ]
        | UnsetType
    ) = UNSET


class ReceivedMessages(Struct, frozen=True, kw_only=True):
    """What was ready; an empty list is a normal answer."""

    messages: list[ReceivedMessage]


class AckBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Receipts of messages that are done."""

    receipts: Annotated[list[str], Meta(min_length=1, max_length=10_000)]


class FailedReceipt(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message that could not be handled."""

    receipt: str
    delay: Duration | None = None
    reason: Annotated[str, Meta(max_length=1_000)] = ""


class NackBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that come back, after a backoff or after the given delay."""

    receipts: Annotated[list[str | FailedReceipt], Meta(min_length=1, max_length=10_000)]
    delay: Duration | None = None
    reason: Annotated[str, Meta(max_length=1_000)] = ""
    uncounted: bool = False


class ExtendBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that stay out for longer, from now on."""

    receipts: Annotated[list[str], Meta(min_length=1, max_length=10_000)]
    lease: Duration | None = None


class RejectBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that go straight to the dead letters."""

    receipts: Annotated[list[str | FailedReceipt], Meta(min_length=1, max_length=10_000)]
    reason: Annotated[str, Meta(max_length=1_000)] = ""


class SettledReceipt(Struct, frozen=True, kw_only=True):
    """A receipt that was not accepted, and why."""

    receipt: str
    topic: Annotated[str, Meta(description="Given where the request named it.")] | UnsetType = UNSET
    error: Failure


class Settled(Struct, frozen=True, kw_only=True):
    """How many receipts were accepted, and those that were not."""

    accepted: int
    failed: list[SettledReceipt]


class ExchangedMessages(ReceivedMessages, frozen=True, kw_only=True):
    """What was ready, and what became of the acks that came along."""

    acked: Settled | UnsetType = UNSET

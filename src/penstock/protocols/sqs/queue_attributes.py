"""The attributes of a queue: their limits, how they are kept, and what they mean to the topic.

Two settings of the topic hold them: `sqs.attributes` what was given, as JSON, and `sqs.tags`. What
concerns delivery and retention is set under the topic's own names too, so that it holds for readers
of every door. Those names count: a topic may have been made, or changed, elsewhere.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from penstock.protocols.sqs.errors import SqsError
from penstock.protocols.sqs.names import name_in_arn

ATTRIBUTES_SETTING = "sqs.attributes"
TAGS_SETTING = "sqs.tags"
FIFO_SUFFIX = ".fifo"
GROUP_SCOPE = "messageGroup"
MESSAGE_BYTES_MAX = 1_048_576
# More than what is stored beside a body and its attributes: the framing of a batch, the message
# group, headers of ours, and the names and types of ten attributes once more.
_ROOM_BYTES = 16 * 1024
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")
_ATTEMPTS_MAX = 1_000
_SOURCES_MAX = 10


class _Number(NamedTuple):
    least: int
    most: int
    default: int


NUMBERS = {
    "DelaySeconds": _Number(0, 900, 0),
    "MaximumMessageSize": _Number(1_024, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": _Number(60, 1_209_600, 345_600),
    "ReceiveMessageWaitTimeSeconds": _Number(0, 20, 0),
    "VisibilityTimeout": _Number(0, 43_200, 30),
    "KmsDataKeyReusePeriodSeconds": _Number(60, 86_400, 300),
}
_SWITCHES = ("FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled")
_CHOICES = {
    "DeduplicationScope": ("queue", GROUP_SCOPE),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
_FIFO_ONLY = ("ContentBasedDeduplication", *_CHOICES)
_TEXTS = ("Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId")
_MEANT_FOR_TOPICS = ("MessageRetentionPeriod", "VisibilityTimeout", "RedrivePolicy")
SETTABLE = frozenset((*NUMBERS, *_SWITCHES, *_CHOICES, *_TEXTS))
READ_ONLY = frozenset(
    (
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "QueueArn",
    )
)


class RedrivePolicy(NamedTuple):
    """Where messages go that were received too often."""

    dead_letter_arn: str
    receives_max: int

    @property
    def dead_letter_queue(self) -> str:
        """The name of the queue that the arn ends with."""
        return self.dead_letter_arn.rpartition(":")[2]


class RedriveAllowPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose dead letters a queue takes."""

    permission: Literal["allowAll", "denyAll", "byQueue"] = msgspec.field(name="redrivePermission")
    source_arns: tuple[str, ...] = msgspec.field(name="sourceQueueArns", default=())


def default_of(name: str) -> str:
    """Return what an attribute is when nobody gave it."""
    if name in NUMBERS:
        return str(NUMBERS[name].default)
    if name in _SWITCHES:
        return "false"
    return _CHOICES.get(name, ("",))[0]


def check_queue_name(name: str, *, is_fifo: bool) -> None:
    """Raise when no queue can have this name."""
    if is_fifo and _FIFO_NAME.fullmatch(name) is None:
        raise SqsError(
            SqsError.INVALID_PARAMETER,
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or"
            f" underscores, must end with .fifo suffix and be 1 to 80 in length; {name[:90]!r} was"
            " given.",
        )
    if not is_fifo and _NAME.fullmatch(name) is None:
        raise SqsError(
            SqsError.INVALID_PARAMETER,
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length;"
            f" {name[:90]!r} was given.",
        )


def check_attributes(given: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """Return attributes as they are kept, or raise what is wrong with one of them."""
    checked = {}
    for name, value in given.items():
        if name not in SETTABLE:
            raise SqsError(SqsError.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:80]}.")
        if name in _FIFO_ONLY and not is_fifo:
            raise SqsError(SqsError.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name}.")
        checked[name] = _check_attribute(name, value)
    read_redrive_policy(given.get("RedrivePolicy", ""))
    read_redrive_allow_policy(given.get("RedriveAllowPolicy", ""))
    return checked


def _check_attribute(name: str, value: str) -> str:
    if name in NUMBERS:
        limits = NUMBERS[name]
        if not value.isdecimal() or not limits.least <= int(value) <= limits.most:
            raise _invalid(name, value, f"it must be between {limits.least} and {limits.most}")
        return str(int(value))
    if name in _SWITCHES:
        if value.lower() not in ("true", "false"):
            raise _invalid(name, value, "it must be true or false")
        return value.lower()
    if name in _CHOICES and value not in _CHOICES[name]:
        raise _invalid(name, value, f"it must be one of {', '.join(_CHOICES[name])}")
    return value


def _invalid(name: str, value: str, reason: str) -> SqsError:
    return SqsError(
        SqsError.INVALID_ATTRIBUTE_VALUE,
        f"Invalid value {value[:80]!r} for the parameter {name}: {reason}.",
    )


def read_redrive_policy(text: str) -> RedrivePolicy | None:
    """Read a redrive policy; an empty text means that there is none."""
    if not text:
        return None
    try:
        policy = msgspec.json.decode(text, type=dict[str, Any])
        arn, receives_max = str(policy["deadLetterTargetArn"]), int(policy["maxReceiveCount"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        raise _invalid(
            "RedrivePolicy", text, "it must hold deadLetterTargetArn and maxReceiveCount"
        ) from None
    if not _is_queue_arn(arn):
        raise _invalid("RedrivePolicy", text, "deadLetterTargetArn must be the arn of a queue")
    if not 1 <= receives_max <= _ATTEMPTS_MAX:
        raise _invalid(
            "RedrivePolicy", text, f"maxReceiveCount must be between 1 and {_ATTEMPTS_MAX}"
        )
    return RedrivePolicy(arn, receives_max)


def read_redrive_allow_policy(text: str) -> RedriveAllowPolicy:
    """Read whose dead letters a queue takes; an empty text means everybody's."""
    if not text:
        return RedriveAllowPolicy("allowAll")
    try:
        policy = msgspec.json.decode(text, type=RedriveAllowPolicy)
    except msgspec.MsgspecError as error:
        raise _invalid("RedriveAllowPolicy", text, str(error)) from None
    count = len(policy.source_arns)
    if policy.permission != "byQueue" and count:
        raise _invalid("RedriveAllowPolicy", text, "sourceQueueArns need the permission byQueue")
    if policy.permission == "byQueue" and not 1 <= count <= _SOURCES_MAX:
        raise _invalid(
            "RedriveAllowPolicy", text, f"byQueue needs 1 to {_SOURCES_MAX} sourceQueueArns"
        )
    if not all(map(_is_queue_arn, policy.source_arns)):
        raise _invalid("RedriveAllowPolicy", text, "sourceQueueArns must be arns of queues")
    return policy


def _is_queue_arn(text: str) -> bool:
    try:
        name_in_arn(text)
    except SqsError:
        return False
    return True


def allows_redrive(policy_text: str, source_arn: str) -> bool:
    """Tell whether a queue takes dead letters of another; one that cannot say so does not."""
    try:
        policy = read_redrive_allow_policy(policy_text)
    except SqsError:
        return False
    return policy.permission == "allowAll" or source_arn in policy.source_arns


def new_topic_settings(attributes: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """Return the settings of a topic that is made as a queue."""
    defaults = {name: default_of(name) for name in _MEANT_FOR_TOPICS}
    order = "key-batch" if is_fifo else "parallel"
    return topic_settings(defaults | dict(attributes)) | {"delivery.order": order}


def topic_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return what given attributes mean to a topic; whatever else it is set to stays."""
    settings: dict[str, str] = {}
    if "MessageRetentionPeriod" in given:
        settings["retention.ms"] = str(int(given["MessageRetentionPeriod"]) * 1_000)
    if "VisibilityTimeout" in given:
        # A lease of no time at all is one that ends at once.
        settings["delivery.lease.ms"] = str(max(1, int(given["VisibilityTimeout"]) * 1_000))
    if "RedrivePolicy" in given:
        policy = read_redrive_policy(given["RedrivePolicy"])
        settings["delivery.attempts.max"] = str(policy.receives_max if policy else 0)
        settings["delivery.dead.letter.topic"] = policy.dead_letter_queue if policy else ""
    return settings


def wider_batches(given: Mapping[str, str], *, batch_bytes_max: int) -> dict[str, str]:
    """Return what lets a topic take messages as large as its queue says, if it does not yet.

    The limit of a topic is never lowered: it holds for batches of many messages, too.
    """
    if "MaximumMessageSize" not in given:
        return {}
    needed = int(given["MaximumMessageSize"]) + _ROOM_BYTES
    return {"max.message.bytes": str(needed)} if needed > batch_bytes_max else {}


def attributes_of_topic(
    *, lease_ms: int, retention_ms: int, batch_bytes_max: int, message_bytes_max: int
) -> dict[str, str]:
    """Return what a topic's own settings are as attributes, in whole seconds.

    A topic can keep records for longer than a queue can say; the longest time stands for it. Of
    messages it takes those that fit its batches, up to what the queue was told.
    """
    retention_s_max = NUMBERS["MessageRetentionPeriod"].most
    retention_s = retention_s_max if retention_ms < 0 else retention_ms // 1_000
    lease_s = min(lease_ms // 1_000, NUMBERS["VisibilityTimeout"].most)
    message_bytes_least = NUMBERS["MaximumMessageSize"].least
    fitting_bytes = max(batch_bytes_max - _ROOM_BYTES, message_bytes_least)
    return {
        "MaximumMessageSize": str(min(message_bytes_max, fitting_bytes)),
        "MessageRetentionPeriod": str(min(retention_s, retention_s_max)),
        "VisibilityTimeout": str(lease_s),
    }

"""The attributes of a queue of SQS, as a topic keeps them: names, limits and shapes.

What is checked here holds whichever door sets them.
"""

from typing import Any, Literal, NamedTuple

import msgspec

from penstock.errors import InvalidSetting

GROUP_SCOPE = "messageGroup"
GROUP_LIMIT = "perMessageGroupId"
QUEUE_MESSAGE_BYTES_MAX = 1_048_576
QUEUE_CREATED = "CreatedTimestamp"
QUEUE_MODIFIED = "LastModifiedTimestamp"
_ATTEMPTS_MAX = 1_000
_SOURCES_MAX = 10
_DIGITS_MAX = 18
_SHOWN_MAX = 80


class NumberLimits(NamedTuple):
    """The limits of an attribute that is a number, and what it is when nobody gave it."""

    least: int
    most: int
    default: int


QUEUE_NUMBERS = {
    "DelaySeconds": NumberLimits(0, 900, 0),
    "MaximumMessageSize": NumberLimits(1_024, QUEUE_MESSAGE_BYTES_MAX, QUEUE_MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": NumberLimits(60, 1_209_600, 345_600),
    "ReceiveMessageWaitTimeSeconds": NumberLimits(0, 20, 0),
    "VisibilityTimeout": NumberLimits(0, 43_200, 30),
    "KmsDataKeyReusePeriodSeconds": NumberLimits(60, 86_400, 300),
}
QUEUE_SWITCHES = ("FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled")
QUEUE_CHOICES = {
    "DeduplicationScope": ("queue", GROUP_SCOPE),
    "FifoThroughputLimit": ("perQueue", GROUP_LIMIT),
}
_TEXTS = ("Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId")
QUEUE_SETTABLE = frozenset((*QUEUE_NUMBERS, *QUEUE_SWITCHES, *QUEUE_CHOICES, *_TEXTS))
# Seconds since 1970, as the queue was made and changed.
_TIMES = {QUEUE_CREATED: NumberLimits(0, 10**11, 0), QUEUE_MODIFIED: NumberLimits(0, 10**11, 0)}


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


def check_queue_attribute(name: str, value: str) -> None:
    """Raise `InvalidSetting` when a queue keeps no attribute of this name with this value."""
    limits = QUEUE_NUMBERS.get(name) or _TIMES.get(name)
    if limits is not None:
        if not _is_number(value, limits):
            raise _invalid(name, value, f"it must be between {limits.least} and {limits.most}")
    elif name in QUEUE_SWITCHES:
        if value not in ("true", "false"):
            raise _invalid(name, value, "it must be true or false")
    elif name in QUEUE_CHOICES:
        if value not in QUEUE_CHOICES[name]:
            raise _invalid(name, value, f"it must be one of {', '.join(QUEUE_CHOICES[name])}")
    elif name == "RedrivePolicy":
        read_redrive_policy(value)
    elif name == "RedriveAllowPolicy":
        read_redrive_allow_policy(value)
    elif name not in QUEUE_SETTABLE:
        raise InvalidSetting(f"{name[:_SHOWN_MAX]} is no attribute of a queue")


def is_queue_attribute(name: str, value: str) -> bool:
    """Tell whether a queue can keep an attribute of this name with this value."""
    try:
        check_queue_attribute(name, value)
    except InvalidSetting:
        return False
    return True


def read_redrive_policy(text: str) -> RedrivePolicy | None:
    """Read a redrive policy; an empty text means that there is none."""
    if not text:
        return None
    try:
        policy = msgspec.json.decode(text, type=dict[str, Any])
        arn, count = str(policy["deadLetterTargetArn"]), policy["maxReceiveCount"]
        receives_max = 0 if isinstance(count, (bool, float)) else int(count)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        raise _invalid(
            "RedrivePolicy", text, "it must hold deadLetterTargetArn and maxReceiveCount"
        ) from None
    if not is_queue_arn(arn):
        raise _invalid("RedrivePolicy", text, "deadLetterTargetArn must be the arn of a queue")
    if not 1 <= receives_max <= _ATTEMPTS_MAX:
        raise _invalid(
            "RedrivePolicy",
            text,
            f"maxReceiveCount must be a whole number between 1 and {_ATTEMPTS_MAX}",
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
    if not all(map(is_queue_arn, policy.source_arns)):
        raise _invalid("RedriveAllowPolicy", text, "sourceQueueArns must be arns of queues")
    return policy


def is_queue_arn(text: str) -> bool:
    """Tell whether a text has the shape of a queue's arn."""
    parts = text.split(":")
    return len(parts) == 6 and parts[2] == "sqs" and bool(parts[5])


def _is_number(value: str, limits: NumberLimits) -> bool:
    is_short = value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX
    return is_short and limits.least <= int(value) <= limits.most


def _invalid(name: str, value: str, reason: str) -> InvalidSetting:
    return InvalidSetting(
        f"Invalid value {value[:_SHOWN_MAX]!r} for the parameter {name}: {reason}."
    )

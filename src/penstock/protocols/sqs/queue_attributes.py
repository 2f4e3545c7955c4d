"""The attributes of a queue: what may be given, and what it means to the topic.

Two settings of the topic hold them: `sqs.attributes` what was given, as JSON, and `sqs.tags`. What
concerns delivery and retention is set under the topic's own names too, so that it holds for readers
of every door. Those names count: a topic may have been made, or changed, elsewhere.
"""

import re
from collections.abc import Mapping

from penstock.broker import (
    GROUP_LIMIT,
    GROUP_SCOPE,
    QUEUE_CHOICES,
    QUEUE_CREATED,
    QUEUE_MODIFIED,
    QUEUE_NUMBERS,
    QUEUE_SETTABLE,
    QUEUE_SWITCHES,
    check_queue_attribute,
    read_redrive_allow_policy,
    read_redrive_policy,
)
from penstock.errors import InvalidSetting
from penstock.protocols.sqs.errors import SqsError

FIFO_SUFFIX = ".fifo"
# More than what is stored beside a body and its attributes: the framing of a batch, the message
# group, headers of ours, and the names and types of ten attributes once more.
_ROOM_BYTES = 16 * 1024
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")


_FIFO_ONLY = ("ContentBasedDeduplication", *QUEUE_CHOICES)
_MEANT_FOR_TOPICS = ("MessageRetentionPeriod", "VisibilityTimeout", "RedrivePolicy")
READ_ONLY = frozenset(
    (
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        QUEUE_CREATED,
        QUEUE_MODIFIED,
        "QueueArn",
    )
)


def default_of(name: str) -> str:
    """Return what an attribute is when nobody gave it."""
    if name in QUEUE_NUMBERS:
        return str(QUEUE_NUMBERS[name].default)
    if name in QUEUE_SWITCHES:
        return "false"
    return QUEUE_CHOICES.get(name, ("",))[0]


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
        if name not in QUEUE_SETTABLE:
            raise SqsError(SqsError.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:80]}.")
        if name in _FIFO_ONLY and not is_fifo:
            raise SqsError(SqsError.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name}.")
        checked[name] = _checked(name, value)
    return checked


def _checked(name: str, value: str) -> str:
    kept = value.lower() if name in QUEUE_SWITCHES else value
    check_queue_attribute(name, kept)
    return str(int(kept)) if name in QUEUE_NUMBERS else kept


def check_throughput(attributes: Mapping[str, str]) -> None:
    """Raise when a FIFO queue would be limited by message group and deduplicated as a whole."""
    limit, scope = attributes.get("FifoThroughputLimit"), attributes.get("DeduplicationScope")
    if limit == GROUP_LIMIT and scope != GROUP_SCOPE:
        raise SqsError(
            SqsError.INVALID_ATTRIBUTE_VALUE,
            f"Invalid value {limit!r} for the parameter FifoThroughputLimit: it is allowed when"
            f" DeduplicationScope is {GROUP_SCOPE}.",
        )


def allows_redrive(policy_text: str, source_arn: str) -> bool:
    """Tell whether a queue takes dead letters of another; one that cannot say so does not."""
    try:
        policy = read_redrive_allow_policy(policy_text)
    except InvalidSetting:
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
        # Retention deletes whole segments, later; a queue hands out nothing that is older.
        kept_ms = str(int(given["MessageRetentionPeriod"]) * 1_000)
        settings |= {"retention.ms": kept_ms, "delivery.ttl.ms": kept_ms}
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
    retention_s_max = QUEUE_NUMBERS["MessageRetentionPeriod"].most
    retention_s = retention_s_max if retention_ms < 0 else retention_ms // 1_000
    lease_s = min(lease_ms // 1_000, QUEUE_NUMBERS["VisibilityTimeout"].most)
    message_bytes_least = QUEUE_NUMBERS["MaximumMessageSize"].least
    fitting_bytes = max(batch_bytes_max - _ROOM_BYTES, message_bytes_least)
    return {
        "MaximumMessageSize": str(min(message_bytes_max, fitting_bytes)),
        "MessageRetentionPeriod": str(min(retention_s, retention_s_max)),
        "VisibilityTimeout": str(lease_s),
    }

"""Deduplication of FIFO queues: a message's id becomes the idempotency key of its record.

Within a queue the id is the key. Within message groups the key is the group and the id, with a
space in between, which neither of them can hold.
"""

import re
from hashlib import sha256

from penstock.protocols.sqs.batches import Entry
from penstock.protocols.sqs.errors import SqsError
from penstock.protocols.sqs.parameters import optional_text
from penstock.protocols.sqs.queues import Queue

_ID = re.compile(r"[!-~]{1,128}")


def check_id(name: str, value: str) -> None:
    """Raise when a text is neither a deduplication id nor the name of a message group."""
    if _ID.fullmatch(value) is None:
        raise SqsError(
            SqsError.INVALID_PARAMETER,
            f"The parameter {name} can only be 1 to 128 alphanumeric and punctuation characters"
            f" long; {value[:140]!r} was given.",
        )


def idempotency_key(queue: Queue, entry: Entry, *, group: str | None, body: bytes) -> str | None:
    """Return the key under which a message is stored once; None for one of a standard queue."""
    given = optional_text(entry, "MessageDeduplicationId")
    if not queue.is_fifo:
        if given is not None:
            raise SqsError(
                SqsError.INVALID_PARAMETER,
                "MessageDeduplicationId is for FIFO queues; this one is not.",
            )
        return None
    if given is not None:
        check_id("MessageDeduplicationId", given)
    elif queue.is_on("ContentBasedDeduplication"):
        given = sha256(body).hexdigest()
    else:
        raise SqsError(
            SqsError.INVALID_PARAMETER,
            "The queue should either have ContentBasedDeduplication enabled or"
            " MessageDeduplicationId provided explicitly",
        )
    return f"{group} {given}" if queue.deduplicates_in_groups else given


def deduplication_id(key: str, group: str | None) -> str:
    """Return the id that a key was made of, under either scope."""
    return key.removeprefix(f"{group} ")

"""Addresses of queues: urls and arns; ids of messages."""

import uuid
from urllib.parse import urlsplit

from penstock.broker import is_queue_arn
from penstock.protocols.sqs.errors import SqsError
from penstock.protocols.sqs.options import SqsOptions


def queue_url(base_url: str, account: str, name: str) -> str:
    """Return the url of a queue, under the address by which the caller reached this node."""
    return f"{base_url.rstrip('/')}/{account}/{name}"


def name_in_url(url: str) -> str:
    """Return the name of the queue that a url ends with."""
    try:
        name = urlsplit(url).path.rstrip("/").rpartition("/")[2]
    except ValueError:
        name = ""
    if not name:
        raise SqsError(SqsError.QUEUE_MISSING, f"The address {url[:200]!r} is not of a queue.")
    return name


def queue_arn(options: SqsOptions, name: str) -> str:
    """Return the arn of a queue."""
    return f"arn:aws:sqs:{options.region}:{options.account}:{name}"


def name_in_arn(arn: str) -> str:
    """Return the name of the queue that an arn ends with."""
    if not is_queue_arn(arn):
        raise SqsError(SqsError.INVALID_PARAMETER, f"{arn[:200]!r} is not the arn of a queue")
    return arn.rpartition(":")[2]


def message_id(topic_id: uuid.UUID, own_id: str) -> str:
    """Return an id that no message of another queue has, also not of one of the same name.

    It is a UUID, as those of the service are: some clients can read nothing else.
    """
    return str(uuid.uuid5(topic_id, own_id))

"""boto3 clients for the SQS door of a running node."""

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.kafka_clients import unique
from tests.processes import NodeProcess

Sqs = Any


def new_sqs(node: NodeProcess, *, retries: int = 1, **settings: Any) -> Sqs:
    """Return a client that does not ask again and again."""
    return boto3.client(
        "sqs",
        endpoint_url=node.http_url,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        config=Config(retries={"max_attempts": retries}, **settings),
    )


def new_queue(sqs: Sqs, suffix: str = "", **attributes: str) -> str:
    """Create a queue of its own for a test; return its url."""
    name = unique("queue") + suffix
    return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def receive(sqs: Sqs, url: str, count: int = 10, **more: Any) -> list[dict[str, Any]]:
    """Receive messages, waiting for the first."""
    settings = {"MaxNumberOfMessages": count, "WaitTimeSeconds": 20, **more}
    return list(sqs.receive_message(QueueUrl=url, **settings).get("Messages", []))


def attributes_of(sqs: Sqs, url: str) -> dict[str, str]:
    """Return all attributes of a queue."""
    return dict(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"])


def arn_of(sqs: Sqs, url: str) -> str:
    """Return the arn of a queue."""
    return attributes_of(sqs, url)["QueueArn"]


def refused(call: Callable[..., Any], **parameters: Any) -> str:
    """Return the code by which a call is refused."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])

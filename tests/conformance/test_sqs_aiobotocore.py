"""The SQS door through aiobotocore."""

import asyncio
from typing import Any

from aiobotocore.session import get_session

from tests.kafka_clients import unique
from tests.processes import NodeProcess


def test_messages_flow_through_aiobotocore(node: NodeProcess) -> None:
    bodies = asyncio.run(_send_and_receive(node))

    assert sorted(bodies) == ["0", "1", "2"]


async def _send_and_receive(node: NodeProcess) -> list[str]:
    client: Any
    async with get_session().create_client(
        "sqs",
        endpoint_url=node.http_url,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    ) as client:
        url = (await client.create_queue(QueueName=unique("queue")))["QueueUrl"]
        for number in range(3):
            await client.send_message(QueueUrl=url, MessageBody=str(number))
        bodies: list[str] = []
        while len(bodies) < 3:
            answer = await client.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5
            )
            for message in answer.get("Messages", []):
                await client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                bodies.append(message["Body"])
        return bodies

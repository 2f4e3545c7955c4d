"""Message move tasks of the SQS door over restarts and in a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.kafka_clients import unique, wait_until
from tests.processes import ClusterProcess, NodeProcess
from tests.sqs_clients import arn_of, attributes_of, new_sqs

pytestmark = pytest.mark.crash

MESSAGES = 40
# Nodes are killed while they are asked.
RETRIES = 4


def begin_move(sqs: Any, *, per_s: int) -> tuple[str, str]:
    """Start moving messages; the arn of the source, and the name of where they go."""
    dead_url = sqs.create_queue(QueueName=unique("dead"))["QueueUrl"]
    source = arn_of(sqs, dead_url)
    policy = {"deadLetterTargetArn": source, "maxReceiveCount": 2}
    url = sqs.create_queue(
        QueueName=unique("queue"), Attributes={"RedrivePolicy": json.dumps(policy)}
    )["QueueUrl"]
    for first in range(0, MESSAGES, 10):
        entries = [
            {"Id": f"{number}", "MessageBody": f"{number}"} for number in range(first, first + 10)
        ]
        sqs.send_message_batch(QueueUrl=dead_url, Entries=entries)
    sqs.start_message_move_task(
        SourceArn=source, DestinationArn=arn_of(sqs, url), MaxNumberOfMessagesPerSecond=per_s
    )
    return source, url.rpartition("/")[2]


def has_completed(sqs: Any, source: str) -> bool:
    tasks = sqs.list_message_move_tasks(SourceArn=source)["Results"]
    return [each["Status"] for each in tasks] == ["COMPLETED"]


def receive_all(sqs: Any, name: str) -> list[str]:
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    bodies: list[str] = []
    while True:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        if "Messages" not in answer:
            return bodies
        bodies += [each["Body"] for each in answer["Messages"]]


def test_a_move_goes_on_after_its_node_was_killed_and_moves_each_message_once(
    tmp_path: Path,
) -> None:
    with NodeProcess(tmp_path) as node:
        sqs = new_sqs(node, retries=RETRIES)
        source, name = begin_move(sqs, per_s=20)
        url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
        wait_until(
            lambda: int(attributes_of(sqs, url)["ApproximateNumberOfMessages"]) > 3,
            "the first messages to move",
        )
        node.kill()
        node.start()

        sqs = new_sqs(node, retries=RETRIES)
        wait_until(lambda: has_completed(sqs, source), "the move to end")

        (task,) = sqs.list_message_move_tasks(SourceArn=source)["Results"]
        assert sorted(map(int, receive_all(sqs, name))) == list(range(MESSAGES))
        assert task["ApproximateNumberOfMessagesMoved"] == MESSAGES


def test_a_move_is_known_at_every_node_and_can_be_cancelled_at_any(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:
        sqs = {number: new_sqs(node, retries=RETRIES) for number, node in cluster.nodes.items()}
        source, _ = begin_move(sqs[1], per_s=1)

        def statuses() -> set[str]:
            try:
                answers = [each.list_message_move_tasks(SourceArn=source) for each in sqs.values()]
            except ClientError:
                # A node has not heard of the queue yet.
                return set()
            return {task["Status"] for answer in answers for task in answer["Results"]}

        wait_until(lambda: statuses() == {"RUNNING"}, "all to know of the move")
        (task,) = sqs[2].list_message_move_tasks(SourceArn=source)["Results"]
        sqs[3].cancel_message_move_task(TaskHandle=task["TaskHandle"])
        wait_until(lambda: statuses() == {"CANCELLED"}, "all to know that it is cancelled")

"""Topics as queues."""

import json
import uuid

from penstock.broker import Topic
from penstock.protocols.sqs.move_tasks import tasks_of
from penstock.protocols.sqs.queues import Queue


def topic_with(**settings: dict[str, str]) -> Topic:
    texts = {name.replace("_", "."): json.dumps(value) for name, value in settings.items()}
    return Topic("orders", uuid.uuid4(), (), texts)


def test_attributes_that_no_queue_can_have_count_for_nothing() -> None:
    kept = {
        "DelaySeconds": "soon",
        "VisibilityTimeout": "-1",
        "RedrivePolicy": "notjson",
        "Colour": "red",
        "ReceiveMessageWaitTimeSeconds": "7",
    }

    queue = Queue(topic_with(sqs_attributes=kept))

    assert queue.attributes == {"ReceiveMessageWaitTimeSeconds": "7"}
    assert (queue.number("DelaySeconds"), queue.number("VisibilityTimeout")) == (0, 30)
    assert queue.number("ReceiveMessageWaitTimeSeconds") == 7
    assert queue.dead_letter_queue is None


def test_move_tasks_that_cannot_be_read_are_none() -> None:
    good = json.dumps({"started_ms": 1, "to_move": 2})
    topic = topic_with(
        sqs_move_tasks={"a": "x", "b": '{"started_ms": "x"}', "c": good, "d": good, "e": "[]"},
        sqs_move_progress={"d": '{"moved": -1}', "c": '{"moved": 1}'},
    )

    assert [(task.handle, task.progress.moved) for task in tasks_of(topic)] == [("c", 1)]

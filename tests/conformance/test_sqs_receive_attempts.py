"""Receives of FIFO queues that are asked for again, through boto3."""

import threading
from typing import Any

import pytest

from tests.kafka_clients import wait_until
from tests.processes import NodeProcess
from tests.sqs_clients import Sqs, attributes_of, new_queue, new_sqs, receive, refused

ID = "ReceiveRequestAttemptId"


@pytest.fixture
def sqs(node: NodeProcess) -> Sqs:
    return new_sqs(node)


def new_fifo_queue(sqs: Sqs, *bodies: str, **attributes: str) -> str:
    """Create a FIFO queue with messages whose group is their first letter."""
    url = new_queue(sqs, ".fifo", FifoQueue="true", ContentBasedDeduplication="true", **attributes)
    for body in bodies:
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[0])
    return url


def handles(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["Body"], each["ReceiptHandle"]) for each in messages]


def receives(node: NodeProcess) -> float:
    """Return how many receives have come to the node."""
    name = 'penstock_requests_total{door="sqs",operation="ReceiveMessage"} '
    lines = node.get("/metrics")[1].decode().splitlines()
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0)


def test_the_same_attempt_gets_the_same_messages_and_receipt_handles(sqs: Sqs) -> None:
    url = new_fifo_queue(sqs, "a0", "b0", "a1")
    asked = {"ReceiveRequestAttemptId": "try-1", "MessageSystemAttributeNames": ["All"]}

    first = receive(sqs, url, count=2, **asked)
    again = receive(sqs, url, count=2, **asked)

    assert len(first) == 2
    assert again == first
    others = receive(sqs, url, count=2, ReceiveRequestAttemptId="try-2", WaitTimeSeconds=0)
    assert {each["Body"] for each in others}.isdisjoint({each["Body"] for each in first})
    for each in (*first, *others):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])


def test_another_request_is_another_attempt(sqs: Sqs) -> None:
    url = new_fifo_queue(sqs, "a0", "b0")
    other = new_fifo_queue(sqs, "c0")

    (first,) = receive(sqs, url, count=1, ReceiveRequestAttemptId="try")
    (second,) = receive(sqs, url, count=2, ReceiveRequestAttemptId="try")
    (third,) = receive(sqs, other, count=1, ReceiveRequestAttemptId="try")

    assert (first["Body"], second["Body"], third["Body"]) == ("a0", "b0", "c0")


def test_a_repeated_attempt_begins_the_visibility_timeout_anew(sqs: Sqs) -> None:
    url = new_fifo_queue(sqs, "a0", VisibilityTimeout="4")
    (first,) = receive(sqs, url, ReceiveRequestAttemptId="try")
    assert receive(sqs, url, WaitTimeSeconds=2) == []
    assert handles(receive(sqs, url, ReceiveRequestAttemptId="try")) == handles([first])

    # Without the repetition it would be visible in the middle of this.
    assert receive(sqs, url, WaitTimeSeconds=3) == []
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])


@pytest.mark.parametrize("change", ["deleted", "changed", "visible"])
def test_an_attempt_is_over_when_one_of_its_messages_was_deleted_or_changed(
    sqs: Sqs, change: str
) -> None:
    url = new_fifo_queue(sqs, "a0", "b0")
    first = receive(sqs, url, ReceiveRequestAttemptId="try")
    sqs.send_message(QueueUrl=url, MessageBody="c0", MessageGroupId="c")
    handle = {"QueueUrl": url, "ReceiptHandle": first[0]["ReceiptHandle"]}
    if change == "deleted":
        sqs.delete_message(**handle)
    else:
        timeout = 0 if change == "visible" else 60
        sqs.change_message_visibility(**handle, VisibilityTimeout=timeout)

    new = receive(sqs, url, ReceiveRequestAttemptId="try")

    assert sorted(each["Body"] for each in new) == (["a0"] * (change == "visible") + ["c0"])
    again = receive(sqs, url, ReceiveRequestAttemptId="try")
    assert handles(again) == handles(new)


def test_an_attempt_is_over_when_its_messages_are_visible_again(sqs: Sqs) -> None:
    url = new_fifo_queue(sqs, "a0", VisibilityTimeout="1")
    (first,) = receive(sqs, url, ReceiveRequestAttemptId="try")
    wait_until(
        lambda: attributes_of(sqs, url)["ApproximateNumberOfMessages"] == "1",
        "the message is there again",
    )

    (second,) = receive(sqs, url, ReceiveRequestAttemptId="try")

    assert second["ReceiptHandle"] != first["ReceiptHandle"]


def test_a_retry_that_comes_while_the_first_request_waits_gets_the_same(
    sqs: Sqs, node: NodeProcess
) -> None:
    url = new_fifo_queue(sqs)
    found: list[list[dict[str, Any]]] = []

    def ask() -> None:
        found.append(receive(new_sqs(node), url, ReceiveRequestAttemptId="try"))

    before = receives(node)
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for each in threads:
        each.start()
    wait_until(lambda: receives(node) == before + 3, "all of them wait")
    sqs.send_message(QueueUrl=url, MessageBody="a0", MessageGroupId="a")
    for each in threads:
        each.join()

    assert len(found[0]) == 1
    assert found[1:] == [found[0]] * 2


def test_an_id_that_is_none_is_refused_and_standard_queues_take_no_notice_of_it(sqs: Sqs) -> None:
    fifo, standard = new_fifo_queue(sqs, "a0"), new_queue(sqs)
    sqs.send_message(QueueUrl=standard, MessageBody="one")
    sqs.send_message(QueueUrl=standard, MessageBody="two")

    for wrong in ("", "x" * 129, "a b", "\u00e9"):
        assert refused(receive, sqs=sqs, url=fifo, **{ID: wrong}) == "InvalidParameterValue"
    assert receive(sqs, fifo, **{ID: "!" + "~" * 127})
    bodies = [receive(sqs, standard, count=1, **{ID: "a b"})[0]["Body"] for _ in range(2)]
    assert sorted(bodies) == ["one", "two"]

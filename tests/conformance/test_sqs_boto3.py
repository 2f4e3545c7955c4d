"""The SQS door through boto3, as its users know it."""

import json
import time
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.kafka_clients import new_producer, publish, read_from, wait_until
from tests.processes import NodeProcess
from tests.sqs_clients import Sqs, arn_of, attributes_of, new_queue, new_sqs, receive, refused

SENT: Any = {"MessageSystemAttributeNames": ["SentTimestamp"]}


@pytest.fixture
def sqs(node: NodeProcess) -> Sqs:
    return new_sqs(node)


def test_a_message_is_sent_received_and_deleted(sqs: Sqs) -> None:
    url = new_queue(sqs)
    attributes = {
        "city": {"DataType": "String", "StringValue": "Oslo"},
        "count": {"DataType": "Number", "StringValue": "3"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\xff\x00"},
    }

    sent = sqs.send_message(QueueUrl=url, MessageBody="héllo\n", MessageAttributes=attributes)
    (message,) = receive(
        sqs, url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
    )
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    assert message["Body"] == "héllo\n"
    assert message["MessageId"] == sent["MessageId"]
    assert str(UUID(message["MessageId"])) == message["MessageId"]
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["MessageAttributes"] == attributes
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert receive(sqs, url, WaitTimeSeconds=0) == []


def test_a_queue_is_a_topic(sqs: Sqs, node: NodeProcess) -> None:
    url = new_queue(sqs)
    topic = url.rpartition("/")[2]

    attribute = {"color": {"DataType": "String", "StringValue": "red"}}
    sqs.send_message(QueueUrl=url, MessageBody="from boto3", MessageAttributes=attribute)
    publish(node, topic, [b"from kafka"])

    values = [message.value() for message in read_from(node, topic, 2)]
    assert values == [b"from boto3", b"from kafka"]
    assert {each["Body"] for each in receive(sqs, url)} == {"from boto3", "from kafka"}


def test_a_record_with_types_that_cannot_be_read_does_not_hold_up_the_others(
    sqs: Sqs, node: NodeProcess
) -> None:
    url = new_queue(sqs)
    producer = new_producer(node)
    headers = [("penstock-sqs-types", b"notjson"), ("city", b"Oslo")]
    producer.produce(url.rpartition("/")[2], b"odd", headers=headers)
    producer.flush()
    sqs.send_message(QueueUrl=url, MessageBody="even")

    odd, even = receive(sqs, url, MessageAttributeNames=["All"])

    assert (odd["Body"], even["Body"]) == ("odd", "even")
    assert odd["MessageAttributes"] == {"city": {"DataType": "String", "StringValue": "Oslo"}}


def test_a_message_that_is_not_deleted_comes_back_with_a_higher_count(sqs: Sqs) -> None:
    url = new_queue(sqs, VisibilityTimeout="1")
    sqs.send_message(QueueUrl=url, MessageBody="again")

    (first,) = receive(sqs, url)
    (second,) = receive(sqs, url, MessageSystemAttributeNames=["ApproximateReceiveCount"])

    assert second["MessageId"] == first["MessageId"]
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_message_is_deleted_after_its_visibility_timeout_unless_it_went_out_again(
    sqs: Sqs,
) -> None:
    url = new_queue(sqs, VisibilityTimeout="1")
    sqs.send_message(QueueUrl=url, MessageBody="slow")
    (slow,) = receive(sqs, url)
    wait_until(
        lambda: attributes_of(sqs, url)["ApproximateNumberOfMessages"] == "1",
        "the message is there again",
    )

    sqs.delete_message(QueueUrl=url, ReceiptHandle=slow["ReceiptHandle"])
    assert attributes_of(sqs, url)["ApproximateNumberOfMessages"] == "0"
    assert receive(sqs, url, WaitTimeSeconds=0) == []

    sqs.send_message(QueueUrl=url, MessageBody="again")
    (first,) = receive(sqs, url)
    (second,) = receive(sqs, url, VisibilityTimeout=30)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    entry = {"Id": "late", "ReceiptHandle": second["ReceiptHandle"]}
    assert attributes_of(sqs, url)["ApproximateNumberOfMessagesNotVisible"] == "1"

    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=0
    )
    assert "Failed" not in sqs.delete_message_batch(QueueUrl=url, Entries=[entry])
    assert receive(sqs, url, WaitTimeSeconds=0) == []


def test_a_long_poll_whose_caller_has_left_takes_no_message(sqs: Sqs, node: NodeProcess) -> None:
    url = new_queue(sqs)
    form = {"Action": "ReceiveMessage", "WaitTimeSeconds": "20", "QueueUrl": url}
    target = {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}

    for request in ({"json": {**form, "WaitTimeSeconds": 20}, "headers": target}, {"data": form}):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(node.http_url, timeout=1, **request)
    sqs.send_message(QueueUrl=url, MessageBody="for the next")

    assert [each["Body"] for each in receive(sqs, url)] == ["for the next"]


def test_visibility_can_be_given_up_at_once_or_extended(sqs: Sqs) -> None:
    url = new_queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="mine")
    (message,) = receive(sqs, url)

    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )
    (again,) = receive(sqs, url)
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=again["ReceiptHandle"], VisibilityTimeout=600
    )

    stale = refused(
        sqs.change_message_visibility,
        QueueUrl=url,
        ReceiptHandle=message["ReceiptHandle"],
        VisibilityTimeout=5,
    )
    assert stale == "AWS.SimpleQueueService.MessageNotInflight"


def test_batches_report_each_entry(sqs: Sqs) -> None:
    url = new_queue(sqs)
    entries = [{"Id": str(number), "MessageBody": f"body {number}"} for number in range(9)]

    sent = sqs.send_message_batch(
        QueueUrl=url, Entries=[*entries, {"Id": "x", "MessageBody": "\0"}]
    )
    messages = receive(sqs, url)
    handles = [
        {"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]}
        for number, each in enumerate(messages)
    ]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**each, "VisibilityTimeout": 60} for each in handles]
    )
    wrong = {"Id": "wrong", "ReceiptHandle": "nonsense"}
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=[*handles, wrong])

    assert [each["Id"] for each in sent["Failed"]] == ["x"]
    assert len(sent["Successful"]) == len(messages) == len(changed["Successful"]) == 9
    assert len(deleted["Successful"]) == 9
    assert [each["Code"] for each in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]


def test_a_bad_entry_of_a_batch_does_not_hide_what_became_of_the_others(node: NodeProcess) -> None:
    sqs = new_sqs(node, parameter_validation=False)
    url = new_queue(sqs)
    for number in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=f"body {number}")
    handles = [
        {"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]}
        for number, each in enumerate(receive(sqs, url))
    ]

    times = (60, 43_201, 60)
    changed = sqs.change_message_visibility_batch(
        QueueUrl=url,
        Entries=[
            {**each, "VisibilityTimeout": time_s}
            for each, time_s in zip(handles, times, strict=True)
        ],
    )
    deleted = sqs.delete_message_batch(
        QueueUrl=url, Entries=[handles[0], {"Id": "without"}, handles[2]]
    )

    assert [each["Id"] for each in changed["Successful"]] == ["0", "2"]
    assert [each["Id"] for each in changed["Failed"]] == ["1"]
    assert [each["Code"] for each in changed["Failed"]] == ["InvalidParameterValue"]
    assert [each["Id"] for each in deleted["Successful"]] == ["0", "2"]
    assert [each["Code"] for each in deleted["Failed"]] == ["MissingParameter"]


def test_a_delayed_message_is_not_early(sqs: Sqs) -> None:
    url = new_queue(sqs)
    begin = time.time()
    sent = sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=1)
    sent_by = time.time()
    sqs.send_message(QueueUrl=url, MessageBody="much later", DelaySeconds=900)

    found: list[dict[str, Any]] = []
    while not found:
        found = receive(sqs, url, WaitTimeSeconds=0, MessageSystemAttributeNames=["SentTimestamp"])

    assert time.time() >= begin + 1
    sent_s = int(found[0]["Attributes"]["SentTimestamp"]) / 1_000
    assert begin - 0.01 <= sent_s <= sent_by
    assert [each["Body"] for each in found] == ["later"]
    assert found[0]["MessageId"] == sent["MessageId"]
    delayed = "ApproximateNumberOfMessagesDelayed"
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[delayed])
    assert counts["Attributes"][delayed] == "1"


def test_messages_that_fail_too_often_go_to_the_dead_letter_queue_and_back(sqs: Sqs) -> None:
    dead_url = new_queue(sqs)
    policy = {"deadLetterTargetArn": arn_of(sqs, dead_url), "maxReceiveCount": 2}
    url = new_queue(sqs, RedrivePolicy=json.dumps(policy))
    sqs.send_message(QueueUrl=url, MessageBody="poison")

    for _ in range(2):
        (message,) = receive(sqs, url)
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
    (dead,) = receive(sqs, dead_url, VisibilityTimeout=1, MessageSystemAttributeNames=["All"])

    assert dead["Body"] == "poison"
    assert dead["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(sqs, url)
    sources = sqs.list_dead_letter_source_queues(QueueUrl=dead_url)
    assert sources["queueUrls"] == [url]
    wait_until(lambda: _moved_back(sqs, dead_url), "the dead letter to be moved back")
    assert [each["Body"] for each in receive(sqs, url)] == ["poison"]


@pytest.mark.parametrize("scope", ["queue", "messageGroup"])
def test_a_message_that_died_and_came_back_has_the_id_that_it_was_sent_with(
    sqs: Sqs, scope: str
) -> None:
    fifo = {"FifoQueue": "true", "DeduplicationScope": scope}
    dead_url = new_queue(sqs, ".fifo", **fifo)
    policy = {"deadLetterTargetArn": arn_of(sqs, dead_url), "maxReceiveCount": 1}
    url = new_queue(sqs, ".fifo", **fifo, RedrivePolicy=json.dumps(policy))
    sqs.send_message(
        QueueUrl=url, MessageBody="poison", MessageGroupId="g", MessageDeduplicationId="id-1"
    )
    (message,) = receive(sqs, url)
    handle = message["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)

    (dead,) = receive(sqs, dead_url, VisibilityTimeout=1, MessageSystemAttributeNames=["All"])
    wait_until(lambda: _moved_back(sqs, dead_url), "the dead letter to be moved back")
    (again,) = receive(sqs, url, MessageSystemAttributeNames=["All"])

    for each in (dead["Attributes"], again["Attributes"]):
        assert (each["MessageDeduplicationId"], each["MessageGroupId"]) == ("id-1", "g")


def test_a_message_keeps_its_id_and_its_time_in_the_dead_letter_queue(sqs: Sqs) -> None:
    dead_url = new_queue(sqs)
    policy = {"deadLetterTargetArn": arn_of(sqs, dead_url), "maxReceiveCount": 1}
    url = new_queue(sqs, RedrivePolicy=json.dumps(policy))
    ids = {
        body: sqs.send_message(QueueUrl=url, MessageBody=body, DelaySeconds=delay_s)["MessageId"]
        for body, delay_s in (("now", 0), ("later", 1))
    }

    alive = [_identity(receive(sqs, url, 1, VisibilityTimeout=1, **SENT)[0]) for _ in ids]
    dead = [_identity(receive(sqs, dead_url, 1, **SENT)[0]) for _ in ids]

    assert {body: message_id for body, message_id, _ in alive} == ids
    assert sorted(dead) == sorted(alive)


def _identity(message: dict[str, Any]) -> tuple[str, str, str]:
    return message["Body"], message["MessageId"], message["Attributes"]["SentTimestamp"]


def test_a_move_of_messages_that_came_from_nowhere_fails_and_says_why(sqs: Sqs) -> None:
    dead_url = new_queue(sqs)
    source = arn_of(sqs, dead_url)
    policy = {"deadLetterTargetArn": source, "maxReceiveCount": 2}
    new_queue(sqs, RedrivePolicy=json.dumps(policy))
    sqs.send_message(QueueUrl=dead_url, MessageBody="sent here by hand")

    sqs.start_message_move_task(SourceArn=source)

    def task() -> dict[str, Any]:
        return dict(sqs.list_message_move_tasks(SourceArn=source)["Results"][0])

    wait_until(lambda: task()["Status"] != "RUNNING", "the task to end")
    assert task()["Status"] == "FAILED"
    assert "does not say which queue" in task()["FailureReason"]


def _dead_letter_pair(sqs: Sqs, count: int) -> tuple[str, str]:
    """A dead-letter queue with so many messages, and another queue."""
    dead_url = new_queue(sqs)
    policy = {"deadLetterTargetArn": arn_of(sqs, dead_url), "maxReceiveCount": 2}
    url = new_queue(sqs, RedrivePolicy=json.dumps(policy))
    for number in range(count):
        sqs.send_message(QueueUrl=dead_url, MessageBody=f"{number}")
    return dead_url, url


def test_a_move_can_be_cancelled_and_what_it_left_stays(sqs: Sqs) -> None:
    dead_url, url = _dead_letter_pair(sqs, 40)
    source = arn_of(sqs, dead_url)

    handle = sqs.start_message_move_task(
        SourceArn=source, DestinationArn=arn_of(sqs, url), MaxNumberOfMessagesPerSecond=1
    )["TaskHandle"]
    assert "UnsupportedOperation" in refused(sqs.start_message_move_task, SourceArn=source)
    (task,) = sqs.list_message_move_tasks(SourceArn=source)["Results"]
    assert (task["Status"], task["TaskHandle"]) == ("RUNNING", handle)
    assert task["ApproximateNumberOfMessagesToMove"] == 40
    cancelled = sqs.cancel_message_move_task(TaskHandle=handle)

    assert cancelled["ApproximateNumberOfMessagesMoved"] < 40
    (task,) = sqs.list_message_move_tasks(SourceArn=source)["Results"]
    assert task["Status"] == "CANCELLED"
    assert "TaskHandle" not in task
    assert refused(sqs.cancel_message_move_task, TaskHandle=handle) == "ResourceNotFoundException"
    assert len(receive(sqs, dead_url)) > 0


def test_a_move_to_a_queue_of_the_other_type_is_refused(sqs: Sqs) -> None:
    dead_url, _ = _dead_letter_pair(sqs, 1)
    fifo_url = new_queue(sqs, ".fifo", FifoQueue="true")

    code = refused(
        sqs.start_message_move_task,
        SourceArn=arn_of(sqs, dead_url),
        DestinationArn=arn_of(sqs, fifo_url),
    )

    assert code == "InvalidParameterValue"
    assert [each["Body"] for each in receive(sqs, dead_url)] == ["0"]


def test_a_move_keeps_its_pace_and_tells_how_many_messages_it_moved(sqs: Sqs) -> None:
    dead_url, url = _dead_letter_pair(sqs, 20)
    source = arn_of(sqs, dead_url)
    begin = time.monotonic()
    handle = sqs.start_message_move_task(
        SourceArn=source, DestinationArn=arn_of(sqs, url), MaxNumberOfMessagesPerSecond=2
    )["TaskHandle"]

    def moved() -> int:
        (task,) = sqs.list_message_move_tasks(SourceArn=source)["Results"]
        return int(task["ApproximateNumberOfMessagesMoved"])

    wait_until(lambda: moved() >= 3, "three messages to be moved")
    cancelled = sqs.cancel_message_move_task(TaskHandle=handle)
    elapsed_s = time.monotonic() - begin

    count = cancelled["ApproximateNumberOfMessagesMoved"]
    assert 3 <= count <= 1 + 2 * elapsed_s
    assert count == moved() == int(attributes_of(sqs, url)["ApproximateNumberOfMessages"])
    left = attributes_of(sqs, dead_url)
    assert int(left["ApproximateNumberOfMessages"]) == 20 - count
    assert left["ApproximateNumberOfMessagesNotVisible"] == "0"


def _moved_back(sqs: Sqs, dead_url: str) -> bool:
    source = arn_of(sqs, dead_url)
    tasks = sqs.list_message_move_tasks(SourceArn=source)["Results"]
    if not tasks or (tasks[0]["Status"] == "COMPLETED" and not _moved(tasks)):
        sqs.start_message_move_task(SourceArn=source)
    return _moved(sqs.list_message_move_tasks(SourceArn=source, MaxResults=10)["Results"])


def _moved(tasks: list[dict[str, Any]]) -> bool:
    return any(task["ApproximateNumberOfMessagesMoved"] == 1 for task in tasks)


def test_a_fifo_queue_keeps_the_order_of_groups_and_drops_duplicates(sqs: Sqs) -> None:
    url = new_queue(sqs, ".fifo", FifoQueue="true", ContentBasedDeduplication="true")
    for number in range(3):
        for group in ("a", "b"):
            body = f"{group}{number}"
            sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
    again = sqs.send_message(QueueUrl=url, MessageBody="a0", MessageGroupId="a")

    seen: list[str] = []
    while len(seen) < 6:
        for message in receive(sqs, url, MessageSystemAttributeNames=["All"]):
            assert message["Attributes"]["MessageGroupId"] == message["Body"][0]
            seen.append(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    assert [each for each in seen if each[0] == "a"] == ["a0", "a1", "a2"]
    assert [each for each in seen if each[0] == "b"] == ["b0", "b1", "b2"]
    assert receive(sqs, url, WaitTimeSeconds=0) == []
    assert again["SequenceNumber"]


@pytest.mark.parametrize(("scope", "bodies"), [("queue", ["same"]), ("messageGroup", ["same"] * 2)])
def test_duplicates_are_dropped_within_the_scope_of_a_queue(
    sqs: Sqs, scope: str, bodies: list[str]
) -> None:
    url = new_queue(sqs, ".fifo", FifoQueue="true", DeduplicationScope=scope)
    for group in ("a", "b", "a"):
        sqs.send_message(
            QueueUrl=url, MessageBody="same", MessageGroupId=group, MessageDeduplicationId="id-1"
        )

    messages: list[dict[str, Any]] = []
    while found := receive(sqs, url, WaitTimeSeconds=0, MessageSystemAttributeNames=["All"]):
        messages += found

    assert [each["Body"] for each in messages] == bodies
    assert {each["Attributes"]["MessageDeduplicationId"] for each in messages} == {"id-1"}


def test_messages_of_one_group_come_together_and_a_failed_one_is_not_passed(sqs: Sqs) -> None:
    url = new_queue(sqs, ".fifo", FifoQueue="true", ContentBasedDeduplication="true")
    for body in ("a0", "a1", "a2", "b0", "a3"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[0])

    first = receive(sqs, url, count=3)
    assert [each["Body"] for each in first] == ["a0", "a1", "a2"]
    assert [each["Body"] for each in receive(sqs, url)] == ["b0"]

    sqs.delete_message(QueueUrl=url, ReceiptHandle=first[1]["ReceiptHandle"])
    for failed in (first[2], first[0]):
        assert receive(sqs, url, WaitTimeSeconds=0) == []
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=failed["ReceiptHandle"], VisibilityTimeout=0
        )

    assert [each["Body"] for each in receive(sqs, url)] == ["a0", "a2", "a3"]


def test_queues_are_found_listed_changed_tagged_purged_and_deleted(sqs: Sqs) -> None:
    url = new_queue(sqs)
    name = url.rpartition("/")[2]

    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert sqs.list_queues(QueueNamePrefix=name)["QueueUrls"] == [url]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "77"})
    sqs.tag_queue(QueueUrl=url, Tags={"team": "a", "stage": "test"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["stage"])
    sqs.add_permission(QueueUrl=url, Label="l", AWSAccountIds=["1"], Actions=["*"])
    sqs.remove_permission(QueueUrl=url, Label="l")
    sqs.send_message(QueueUrl=url, MessageBody="one")
    sqs.send_message(QueueUrl=url, MessageBody="one later", DelaySeconds=1)
    sqs.purge_queue(QueueUrl=url)

    attributes = attributes_of(sqs, url)
    assert attributes["VisibilityTimeout"] == "77"
    assert attributes["ApproximateNumberOfMessages"] == "0"
    assert attributes["ApproximateNumberOfMessagesDelayed"] == "0"
    assert receive(sqs, url, WaitTimeSeconds=2) == []
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a"}
    too_soon = refused(sqs.purge_queue, QueueUrl=url)
    assert too_soon == "AWS.SimpleQueueService.PurgeQueueInProgress"
    sqs.delete_queue(QueueUrl=url)
    assert refused(sqs.get_queue_url, QueueName=name).endswith("NonExistentQueue")
    sqs.create_queue(QueueName=name)
    sqs.purge_queue(QueueUrl=url)


def test_messages_of_a_queue_that_is_created_again_have_other_ids(sqs: Sqs) -> None:
    url = new_queue(sqs)
    first = sqs.send_message(QueueUrl=url, MessageBody="one")
    sqs.delete_queue(QueueUrl=url)

    sqs.create_queue(QueueName=url.rpartition("/")[2])
    second = sqs.send_message(QueueUrl=url, MessageBody="one")

    assert second["MessageId"] != first["MessageId"]


def test_receipts_of_a_queue_that_was_there_before_are_refused(sqs: Sqs) -> None:
    url = new_queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="one")
    (message,) = receive(sqs, url)
    sqs.delete_queue(QueueUrl=url)
    sqs.create_queue(QueueName=url.rpartition("/")[2])
    old = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    entry = {"Id": "1", "ReceiptHandle": message["ReceiptHandle"]}

    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=[entry])

    assert refused(sqs.delete_message, **old) == "ReceiptHandleIsInvalid"
    assert refused(sqs.change_message_visibility, **old, VisibilityTimeout=1) == (
        "ReceiptHandleIsInvalid"
    )
    assert [(each["Code"], each["SenderFault"]) for each in deleted["Failed"]] == [
        ("ReceiptHandleIsInvalid", True)
    ]


def test_bad_requests_get_the_codes_of_the_real_service(sqs: Sqs) -> None:
    url = new_queue(sqs)
    fifo_url = new_queue(sqs, ".fifo", FifoQueue="true")
    deduplicating_url = new_queue(sqs, ".fifo", FifoQueue="true", ContentBasedDeduplication="true")
    reserved = {"penstock-foo": {"DataType": "String", "StringValue": "v"}}
    no_number = {"count": {"DataType": "Number", "StringValue": "abc"}}
    name = url.rpartition("/")[2]
    entry = {"Id": "1", "MessageBody": "b"}
    prefix = "AWS.SimpleQueueService."

    codes = [
        refused(sqs.create_queue, QueueName="no spaces"),
        refused(sqs.create_queue, QueueName=name, Attributes={"DelaySeconds": "9"}),
        refused(sqs.create_queue, QueueName="new", Attributes={"DelaySeconds": "901"}),
        refused(sqs.create_queue, QueueName="new", Attributes={"Nonsense": "1"}),
        refused(sqs.send_message, QueueUrl=url + "x", MessageBody="b"),
        refused(sqs.send_message, QueueUrl=url, MessageBody="\x01"),
        refused(sqs.send_message, QueueUrl=fifo_url, MessageBody="b"),
        refused(
            sqs.send_message, QueueUrl=deduplicating_url, MessageBody="b", MessageGroupId="a b"
        ),
        refused(sqs.send_message, QueueUrl=url, MessageBody="b", MessageAttributes=reserved),
        refused(sqs.send_message, QueueUrl=url, MessageBody="b", MessageAttributes=no_number),
        refused(sqs.send_message_batch, QueueUrl=url, Entries=[]),
        refused(sqs.send_message_batch, QueueUrl=url, Entries=[entry, entry]),
        refused(sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=11),
        refused(sqs.delete_message, QueueUrl=url, ReceiptHandle="nonsense"),
        refused(sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["Nonsense"]),
    ]

    assert codes == [
        "InvalidParameterValue",
        "QueueAlreadyExists",
        "InvalidAttributeValue",
        "InvalidAttributeName",
        f"{prefix}NonExistentQueue",
        "InvalidMessageContents",
        "MissingParameter",
        "InvalidParameterValue",
        "InvalidParameterValue",
        "InvalidParameterValue",
        f"{prefix}EmptyBatchRequest",
        f"{prefix}BatchEntryIdsNotDistinct",
        "InvalidParameterValue",
        "ReceiptHandleIsInvalid",
        "InvalidAttributeName",
    ]

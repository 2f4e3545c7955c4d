"""Attributes of queues, and the settings of the topics that queues are."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.kafka_clients import create_topic, new_topic, publish, unique, wait_until
from tests.processes import NodeProcess
from tests.sqs_clients import Sqs, arn_of, attributes_of, new_queue, new_sqs, receive, refused

OWN_SETTINGS = {
    "retention.ms": "-1",
    "delivery.order": "key",
    "delivery.attempts.max": "2",
    "delivery.lease.ms": "60000",
}
ARN = "arn:aws:sqs:us-east-1:000000000000:any"
LARGEST = 1_048_576
INVALID = "InvalidParameterValue"


@pytest.fixture
def sqs(node: NodeProcess) -> Sqs:
    return new_sqs(node)


def topic_as_queue(node: NodeProcess, sqs: Sqs, **settings: str) -> tuple[str, str]:
    """A topic that was not made as a queue: its name and its url."""
    name = new_topic(node, **settings)
    return name, str(sqs.get_queue_url(QueueName=name)["QueueUrl"])


def described(node: NodeProcess, url: str) -> dict[str, Any]:
    name = url.rpartition("/")[2]
    return dict(httpx.get(f"{node.http_url}/v1/topics/{name}", timeout=60).json())


def settings_of(node: NodeProcess, url: str) -> dict[str, str]:
    return {name: each["value"] for name, each in described(node, url)["settings"].items()}


def test_only_the_attributes_that_are_given_change_a_topic(sqs: Sqs, node: NodeProcess) -> None:
    own = {name.replace(".", "_"): value for name, value in OWN_SETTINGS.items()}
    _, url = topic_as_queue(node, sqs, **own)

    sqs.set_queue_attributes(QueueUrl=url, Attributes={"ReceiveMessageWaitTimeSeconds": "5"})
    kept = settings_of(node, url)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "7"})
    changed = settings_of(node, url)

    assert {each: kept[each] for each in OWN_SETTINGS} == OWN_SETTINGS
    assert {each: changed[each] for each in OWN_SETTINGS} == {
        **OWN_SETTINGS,
        "delivery.lease.ms": "7000",
    }
    assert attributes_of(sqs, url)["ReceiveMessageWaitTimeSeconds"] == "5"


def test_changes_of_a_queue_at_the_same_time_keep_each_other(sqs: Sqs) -> None:
    url = new_queue(sqs)
    attributes = {"VisibilityTimeout": "11", "DelaySeconds": "5", "MaximumMessageSize": "2048"}
    tags = {f"tag-{number}": "kept" for number in range(12)}

    with ThreadPoolExecutor(len(attributes) + len(tags)) as threads:
        changes = [
            threads.submit(sqs.set_queue_attributes, QueueUrl=url, Attributes={name: value})
            for name, value in attributes.items()
        ] + [
            threads.submit(sqs.tag_queue, QueueUrl=url, Tags={name: value})
            for name, value in tags.items()
        ]
        for change in changes:
            change.result()

    shown = attributes_of(sqs, url)
    assert {name: shown[name] for name in attributes} == attributes
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == tags


def test_a_topic_that_keeps_no_order_is_not_taken_for_a_fifo_queue(
    sqs: Sqs, node: NodeProcess
) -> None:
    def create(partitions: int, **settings: str) -> str:
        name = unique("queue") + ".fifo"
        create_topic(node, name, partitions=partitions, **settings)
        try:
            sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
        except ClientError as error:
            return str(error.response["Error"]["Message"])
        return ""

    assert "FifoQueue" in create(1)
    assert "DeduplicationScope" in create(2, delivery_order="key")
    assert create(1, delivery_order="key") == ""


def test_another_delay_of_a_fifo_queue_holds_for_messages_that_wait(sqs: Sqs) -> None:
    url = new_queue(sqs, ".fifo", FifoQueue="true", ContentBasedDeduplication="true")

    def delayed(delay_s: int, *bodies: str) -> None:
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": str(delay_s)})
        for body in bodies:
            sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="group")

    delayed(600, "1", "2", "3")
    delayed(900)
    assert attributes_of(sqs, url)["ApproximateNumberOfMessagesDelayed"] == "3"
    delayed(0, "4")

    assert [each["Body"] for each in receive(sqs, url)] == ["1", "2", "3", "4"]


def test_messages_that_are_older_than_their_queue_keeps_them_are_not_received(
    sqs: Sqs, node: NodeProcess
) -> None:
    url = new_queue(sqs, MessageRetentionPeriod="60")
    name = url.rpartition("/")[2]
    now_ms = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce(name, value="too old", timestamp=now_ms - 61_000)
    producer.produce(name, value="young", timestamp=now_ms)
    producer.flush(60)

    assert [each["Body"] for each in receive(sqs, url, count=10)] == ["young"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "120"})
    assert settings_of(node, url)["delivery.ttl.ms"] == "120000"


def test_a_redrive_policy_that_is_taken_away_leaves_no_limit(sqs: Sqs, node: NodeProcess) -> None:
    dead_arn = arn_of(sqs, new_queue(sqs))
    policy = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": 3})
    url = new_queue(sqs, RedrivePolicy=policy)

    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "1"})
    kept = settings_of(node, url)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    taken = settings_of(node, url)

    names = ("delivery.attempts.max", "delivery.dead.letter.topic")
    assert [kept[name] for name in names] == ["3", dead_arn.rpartition(":")[2]]
    assert [taken[name] for name in names] == ["0", ""]
    assert "RedrivePolicy" not in attributes_of(sqs, url)


@pytest.mark.parametrize(
    ("retention_ms", "shown"), [("-1", "1209600"), ("7200000", "7200"), ("99999999999", "1209600")]
)
def test_a_topic_that_was_made_elsewhere_shows_what_it_is_set_to(
    sqs: Sqs, node: NodeProcess, retention_ms: str, shown: str
) -> None:
    _, url = topic_as_queue(node, sqs, delivery_lease_ms="90000", retention_ms=retention_ms)

    found = attributes_of(sqs, url)

    assert (found["VisibilityTimeout"], found["MessageRetentionPeriod"]) == ("90", shown)


def test_a_topic_that_was_made_elsewhere_leases_for_as_long_as_it_says(
    sqs: Sqs, node: NodeProcess
) -> None:
    name, url = topic_as_queue(node, sqs, delivery_lease_ms="500", delivery_attempts_max="2")
    publish(node, name, [b"from kafka"])

    counts = [
        receive(sqs, url, MessageSystemAttributeNames=["All"])[0]["Attributes"][
            "ApproximateReceiveCount"
        ]
        for _ in range(2)
    ]

    assert counts == ["1", "2"]
    dead_name = f"{name}.dlq"
    wait_until(lambda: sqs.list_queues(QueueNamePrefix=dead_name)["QueueUrls"], "its death")
    (dead,) = receive(sqs, f"{url}.dlq")
    assert dead["Body"] == "from kafka"


@pytest.mark.parametrize(
    ("suffix", "attributes"),
    [
        ("", {"VisibilityTimeout": "30", "FifoQueue": "false", "RedrivePolicy": ""}),
        ("", {"MaximumMessageSize": "1048576", "KmsDataKeyReusePeriodSeconds": "300"}),
        (".fifo", {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}),
        (".fifo", {"ContentBasedDeduplication": "false", "SqsManagedSseEnabled": "false"}),
    ],
)
def test_a_queue_that_is_created_again_with_its_defaults_is_the_same(
    sqs: Sqs, suffix: str, attributes: dict[str, str]
) -> None:
    fifo = {"FifoQueue": "true"} if suffix else {}
    url = new_queue(sqs, suffix, **fifo)
    name = url.rpartition("/")[2]

    again = sqs.create_queue(QueueName=name, Attributes={**fifo, **attributes})

    assert again["QueueUrl"] == url


def test_a_fifo_queue_is_one_partition_unless_its_groups_are_deduplicated_apart(
    tmp_path: Path,
) -> None:
    with NodeProcess(tmp_path, "--default-partitions", "3") as node:
        sqs = new_sqs(node)
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        whole = new_queue(sqs, ".fifo", **fifo)
        spread = new_queue(sqs, ".fifo", **fifo, DeduplicationScope="messageGroup")

        for group in "abcdef":
            sqs.send_message(QueueUrl=whole, MessageBody="same", MessageGroupId=group)

        assert attributes_of(sqs, whole)["ApproximateNumberOfMessages"] == "1"
        counts = [len(described(node, url)["partitions"]) for url in (whole, spread)]
        assert counts == [1, 3]
        scope = {"DeduplicationScope": "queue"}
        code = refused(sqs.set_queue_attributes, QueueUrl=spread, Attributes=scope)
        assert code == "InvalidAttributeValue"


def test_a_limit_for_each_message_group_needs_deduplication_within_groups(sqs: Sqs) -> None:
    limit = {"FifoThroughputLimit": "perMessageGroupId"}
    fifo = {"FifoQueue": "true"}
    by_group = {"DeduplicationScope": "messageGroup"}
    plain, fast = (
        new_queue(sqs, ".fifo", **fifo),
        new_queue(sqs, ".fifo", **fifo, **limit, **by_group),
    )
    whole = {"DeduplicationScope": "queue"}

    codes = [
        refused(sqs.create_queue, QueueName="limited.fifo", Attributes={**fifo, **limit}),
        refused(sqs.create_queue, QueueName="limited.fifo", Attributes={**fifo, **limit, **whole}),
        refused(sqs.set_queue_attributes, QueueUrl=plain, Attributes=limit),
        refused(sqs.set_queue_attributes, QueueUrl=fast, Attributes=whole),
    ]
    sqs.set_queue_attributes(QueueUrl=plain, Attributes={**limit, **by_group})
    sqs.set_queue_attributes(QueueUrl=fast, Attributes={"FifoThroughputLimit": "perQueue", **whole})

    assert codes == ["InvalidAttributeValue"] * 4


@pytest.mark.parametrize(
    "policy",
    [
        "notjson",
        "[]",
        "{}",
        '{"redrivePermission": "sometimes"}',
        '{"redrivePermission": "byQueue"}',
        '{"redrivePermission": "byQueue", "sourceQueueArns": "any"}',
        '{"redrivePermission": "byQueue", "sourceQueueArns": ["any"]}',
        json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [ARN] * 11}),
        json.dumps({"redrivePermission": "denyAll", "sourceQueueArns": [ARN]}),
    ],
)
def test_a_redrive_allow_policy_that_says_nothing_is_refused(sqs: Sqs, policy: str) -> None:
    attributes = {"RedriveAllowPolicy": policy}

    created = refused(sqs.create_queue, QueueName="never", Attributes=attributes)
    changed = refused(sqs.set_queue_attributes, QueueUrl=new_queue(sqs), Attributes=attributes)

    assert created == changed == "InvalidAttributeValue"


def test_a_redrive_allow_policy_decides_whose_dead_letters_are_taken(sqs: Sqs) -> None:
    url = new_queue(sqs)
    by_queue = {"redrivePermission": "byQueue", "sourceQueueArns": [arn_of(sqs, url)]}
    target = arn_of(sqs, new_queue(sqs, RedriveAllowPolicy=json.dumps(by_queue)))
    policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": 2})}

    sqs.set_queue_attributes(QueueUrl=url, Attributes=policy)

    other = refused(sqs.set_queue_attributes, QueueUrl=new_queue(sqs), Attributes=policy)
    assert other == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ("sqs.attributes", {"VisibilityTimeout": "-1"}),
        ("sqs.attributes", {"DelaySeconds": "soon"}),
        ("sqs.attributes", {"RedrivePolicy": "notjson"}),
        ("sqs.tags", {"": "no key"}),
        ("sqs.move.tasks", {"task": "notjson"}),
        ("sqs.move.progress", {"task": "notjson"}),
    ],
)
def test_settings_that_no_queue_can_have_are_refused_by_other_doors(
    sqs: Sqs, node: NodeProcess, setting: str, kept: dict[str, str]
) -> None:
    name, url = topic_as_queue(node, sqs)
    path = f"{node.http_url}/v1/topics/{name}"

    over_http = httpx.patch(path, json={"settings": {setting: json.dumps(kept)}}, timeout=60)
    with pytest.raises(KafkaException) as over_kafka:
        new_topic(node, **{setting.replace(".", "_"): json.dumps(kept)})

    assert (over_http.status_code, over_http.json()["error"]["type"]) == (400, "InvalidSetting")
    assert setting in over_http.json()["error"]["message"]
    assert over_kafka.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert attributes_of(sqs, url)["VisibilityTimeout"] == "30"


def test_a_number_of_too_many_digits_is_refused(sqs: Sqs) -> None:
    attributes = {"VisibilityTimeout": "9" * 5_000}

    code = refused(sqs.set_queue_attributes, QueueUrl=new_queue(sqs), Attributes=attributes)

    assert code == "InvalidAttributeValue"


@pytest.mark.parametrize("count", [2.7, True, 0, 1_001, "2.7"])
def test_a_redrive_policy_counts_whole_receives(sqs: Sqs, count: object) -> None:
    policy = json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": count})

    code = refused(sqs.create_queue, QueueName="never", Attributes={"RedrivePolicy": policy})

    assert code == "InvalidAttributeValue"


def test_an_address_that_cannot_be_read_is_of_no_queue(sqs: Sqs) -> None:
    code = refused(sqs.send_message, QueueUrl="http://[x", MessageBody="b")

    assert code == "AWS.SimpleQueueService.NonExistentQueue"


def test_tags_that_are_too_long_are_refused(sqs: Sqs) -> None:
    tags = {"team": "x" * 257}

    assert refused(sqs.create_queue, QueueName="never", tags=tags) == "InvalidParameterValue"
    assert refused(sqs.tag_queue, QueueUrl=new_queue(sqs), Tags=tags) == "InvalidParameterValue"


def test_a_queue_cannot_be_its_own_dead_letter_queue(sqs: Sqs) -> None:
    url = new_queue(sqs)
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, url), "maxReceiveCount": 2})

    code = refused(sqs.set_queue_attributes, QueueUrl=url, Attributes={"RedrivePolicy": policy})

    assert code == "InvalidParameterValue"


def test_a_dead_letter_queue_that_does_not_exist_is_a_wrong_value(sqs: Sqs) -> None:
    policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 2})}
    url = new_queue(sqs)

    assert refused(sqs.create_queue, QueueName="never", Attributes=policy) == INVALID
    assert refused(sqs.set_queue_attributes, QueueUrl=url, Attributes=policy) == INVALID


def test_the_sources_of_a_dead_letter_queue_are_listed_page_by_page(sqs: Sqs) -> None:
    target_url = new_queue(sqs)
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, target_url), "maxReceiveCount": 2})
    urls = sorted(new_queue(sqs, RedrivePolicy=policy) for _ in range(3))

    pages = sqs.get_paginator("list_dead_letter_source_queues").paginate(
        QueueUrl=target_url, PaginationConfig={"PageSize": 2}
    )

    assert [page["queueUrls"] for page in pages] == [urls[:2], urls[2:]]
    list_sources = sqs.list_dead_letter_source_queues
    assert refused(list_sources, QueueUrl=target_url, MaxResults=1001) == INVALID


def with_large_attributes(size_bytes: int) -> dict[str, Any]:
    """A message of this size whose attributes have the longest names and types there are."""
    data_type = "String." + '"' * 249
    attributes = {
        f"{number}".rjust(256, "a"): {"DataType": data_type, "StringValue": "v"}
        for number in range(10)
    }
    body = "b" * (size_bytes - 10 * (256 + len(data_type) + 1))
    return {"MessageBody": body, "MessageAttributes": attributes}


@pytest.mark.parametrize("delay", [{}, {"DelaySeconds": 1}], ids=["at once", "delayed"])
def test_a_queue_takes_messages_as_large_as_it_says(sqs: Sqs, delay: dict[str, int]) -> None:
    url = new_queue(sqs)

    assert attributes_of(sqs, url)["MaximumMessageSize"] == str(LARGEST)
    sqs.send_message(QueueUrl=url, MessageBody="b" * LARGEST, **delay)
    sqs.send_message(QueueUrl=url, **with_large_attributes(LARGEST), **delay)

    sizes: list[int] = []
    while len(sizes) < 2:
        sizes += [len(each["Body"]) for each in receive(sqs, url)]
    assert sorted(sizes)[1] == LARGEST
    code = refused(sqs.send_message, QueueUrl=url, MessageBody="b" * (LARGEST + 1))
    assert code == "InvalidParameterValue"


def test_a_message_counts_as_it_is_however_its_sender_escapes_it(
    sqs: Sqs, node: NodeProcess
) -> None:
    url = new_queue(sqs)
    # Some SDKs write each of these characters like this, so that pages can hold the text.
    escaped = "\\u003c" * LARGEST
    body = f'{{"QueueUrl":"{url}","MessageBody":"{escaped}"}}'
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "AmazonSQS.SendMessage",
    }

    answer = httpx.post(node.http_url, content=body, headers=headers, timeout=60)

    assert answer.status_code == 200, answer.text
    assert receive(sqs, url)[0]["Body"] == "<" * LARGEST


def test_the_attributes_of_messages_count_for_the_largest_message_and_batch(sqs: Sqs) -> None:
    url = new_queue(sqs)
    small = {"Id": "small", "MessageBody": "b" * 1_000}
    rest = {"Id": "rest", **with_large_attributes(LARGEST - 1_000)}
    more = {"Id": "more", **with_large_attributes(LARGEST - 999)}

    sent = sqs.send_message_batch(QueueUrl=url, Entries=[small, rest])
    batch = refused(sqs.send_message_batch, QueueUrl=url, Entries=[small, more])
    single = refused(sqs.send_message, QueueUrl=url, **with_large_attributes(LARGEST + 1))

    assert len(sent["Successful"]) == 2
    assert batch == "AWS.SimpleQueueService.BatchRequestTooLong"
    assert single == "InvalidParameterValue"


def test_a_fifo_queue_takes_messages_as_large_as_it_says(sqs: Sqs) -> None:
    url = new_queue(sqs, ".fifo", FifoQueue="true", DeduplicationScope="messageGroup")

    sqs.send_message(
        QueueUrl=url,
        MessageGroupId="g" * 128,
        MessageDeduplicationId="d" * 128,
        **with_large_attributes(LARGEST),
    )

    assert len(receive(sqs, url)) == 1


def test_a_topic_that_was_made_elsewhere_says_what_it_takes_and_can_be_told_to_take_more(
    sqs: Sqs, node: NodeProcess
) -> None:
    _, url = topic_as_queue(node, sqs, max_message_bytes="100000")

    said = int(attributes_of(sqs, url)["MaximumMessageSize"])
    sqs.send_message(QueueUrl=url, **with_large_attributes(said))
    code = refused(sqs.send_message, QueueUrl=url, MessageBody="b" * 100_000)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MaximumMessageSize": "200000"})
    sqs.send_message(QueueUrl=url, **with_large_attributes(200_000))

    assert 50_000 < said < 100_000
    assert code == "InvalidParameterValue"
    assert attributes_of(sqs, url)["MaximumMessageSize"] == "200000"


def test_a_smaller_size_does_not_narrow_what_other_doors_may_send(
    sqs: Sqs, node: NodeProcess
) -> None:
    url = new_queue(sqs, MaximumMessageSize="1024")

    assert settings_of(node, url)["max.message.bytes"] == "1048588"
    code = refused(sqs.send_message, QueueUrl=url, MessageBody="b" * 1025)
    assert code == "InvalidParameterValue"

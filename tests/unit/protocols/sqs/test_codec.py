from hashlib import md5
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import pytest

from penstock.protocols.sqs.codec import Call, decode_call, encode_error, encode_reply
from penstock.protocols.sqs.errors import SqsError

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


def query(**fields: str) -> Call:
    return decode_call({}, urlencode(fields).encode(), "")


def test_a_json_request_names_its_action_in_a_header() -> None:
    call = decode_call({"x-amz-target": "AmazonSQS.SendMessage"}, b'{"QueueUrl": "u"}', "")

    assert call == Call("SendMessage", {"QueueUrl": "u"}, is_json=True)


def test_numbered_attributes_become_a_map() -> None:
    fields = {"Attribute.1.Name": "DelaySeconds", "Attribute.1.Value": "5", "Tag.1.Key": "a"}
    call = query(Action="CreateQueue", QueueName="q", **fields, **{"Tag.1.Value": "b"})

    assert call.parameters == {
        "QueueName": "q",
        "Attributes": {"DelaySeconds": "5"},
        "Tags": {"a": "b"},
    }


def test_numbered_entries_become_a_list_in_the_order_of_their_numbers() -> None:
    prefix = "SendMessageBatchRequestEntry"
    call = query(
        Action="SendMessageBatch",
        **{
            f"{prefix}.10.Id": "b",
            f"{prefix}.2.Id": "a",
            f"{prefix}.2.MessageAttribute.1.Name": "n",
            f"{prefix}.2.MessageAttribute.1.Value.DataType": "String",
            f"{prefix}.2.MessageAttribute.1.Value.StringValue": "v",
        },
    )

    attribute = {"DataType": "String", "StringValue": "v"}
    assert call.parameters == {
        "Entries": [{"Id": "a", "MessageAttributes": {"n": attribute}}, {"Id": "b"}]
    }


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"x-amz-target": "DynamoDB.Get"}, b"{}"),
        ({"x-amz-target": "AmazonSQS.SendMessage"}, b"[]"),
        ({"x-amz-target": "AmazonSQS.SendMessage"}, b"{"),
        ({}, b""),
        ({}, b"\xff"),
        ({}, b"Action=X&Attribute.a.Name=1"),
        ({}, b"Action=X&A=1&A.B=2"),
        ({"x-amz-target": "AmazonSQS.SendMessage"}, b'{"QueueUrl": "\xff"}'),
        ({"x-amz-target": "AmazonSQS.SendMessage"}, b'{"QueueUrl": ' + b"[" * 100_000),
    ],
)
def test_what_cannot_be_read_is_refused(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(SqsError):
        decode_call(headers, body, "")


def test_an_answer_in_xml_repeats_the_elements_of_lists_and_maps() -> None:
    call = Call("ReceiveMessage", {}, is_json=False)
    message = {"Body": "a<b\r", "Attributes": {"SentTimestamp": "1"}}

    reply = encode_reply(call, {"Messages": [message, message]}, "id-1")

    root = ET.fromstring(reply.body)
    messages = root.findall(f"{NAMESPACE}ReceiveMessageResult/{NAMESPACE}Message")
    assert [each.findtext(f"{NAMESPACE}Body") for each in messages] == ["a<b\r", "a<b\r"]
    assert messages[0].findtext(f"{NAMESPACE}Attribute/{NAMESPACE}Name") == "SentTimestamp"
    assert root.findtext(f"{NAMESPACE}ResponseMetadata/{NAMESPACE}RequestId") == "id-1"


def test_what_xml_cannot_hold_is_replaced_and_the_checksum_is_that_of_what_is_sent() -> None:
    call = Call("ReceiveMessage", {}, is_json=False)
    message = {"Body": "a\x01\x00b", "MD5OfBody": "of another text"}

    reply = encode_reply(call, {"Messages": [message]}, "id-1")

    root = ET.fromstring(reply.body)
    assert root.findtext(f".//{NAMESPACE}Body") == "a\ufffd\ufffdb"
    expected = md5("a\ufffd\ufffdb".encode(), usedforsecurity=False).hexdigest()
    assert root.findtext(f".//{NAMESPACE}MD5OfBody") == expected


def test_an_error_about_what_xml_cannot_hold_can_be_read() -> None:
    reply = encode_error(SqsError.QUEUE_MISSING, "no \x0b here", "id-1", is_json=False)

    assert ET.fromstring(reply.body).findtext(f".//{NAMESPACE}Message") == "no \ufffd here"


def test_an_error_carries_both_codes() -> None:
    reply = encode_error(SqsError.QUEUE_MISSING, "gone", "id-1", is_json=True)

    assert reply.status == 400
    assert b"com.amazonaws.sqs#QueueDoesNotExist" in reply.body
    expected = "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert reply.headers["x-amzn-query-error"] == expected

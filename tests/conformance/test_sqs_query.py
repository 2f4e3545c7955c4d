"""The older query protocol of SQS, and signatures, on a node that was given access keys.

Today's SDKs speak JSON. Requests are forms that are signed by botocore, and answers are compared,
element by element, with those that the API reference shows.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import boto3
import httpx
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.kafka_clients import publish, unique
from tests.processes import NodeProcess

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    directory = tmp_path_factory.mktemp("guarded")
    keys = directory / "keys"
    keys.write_text(f"# who may send and receive\n{KEY}:{SECRET}\n")
    with NodeProcess(directory / "node", "--sqs-access-keys-file", str(keys)) as node:
        yield node


def post(
    node: NodeProcess,
    path: str = "/",
    *,
    key: str = KEY,
    secret: str = SECRET,
    **fields: str | bytes,
) -> httpx.Response:
    """Send a signed form."""
    body = urlencode({**fields, "Version": "2012-11-05"})
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    request = AWSRequest("POST", f"{node.http_url}{path}", headers, body)
    SigV4Auth(Credentials(key, secret), "sqs", "us-east-1").add_auth(request)
    return httpx.post(request.url, content=body, headers=dict(request.headers), timeout=120)


def ask(node: NodeProcess, path: str = "/", **fields: str | bytes) -> ET.Element:
    answer = post(node, path, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/xml")
    return ET.fromstring(answer.text)


def shape_of(element: ET.Element) -> Any:
    """Names of elements, as nested lists; what repeats is told once."""
    shapes: list[Any] = []
    for child in element:
        name, inner = child.tag.removeprefix(NAMESPACE), shape_of(child)
        shape = [name, inner] if inner else name
        if shape not in shapes:
            shapes.append(shape)
    return shapes


def text_of(element: ET.Element, name: str) -> str:
    found = element.find(f".//{NAMESPACE}{name}")
    assert found is not None, (name, ET.tostring(element))
    return found.text or ""


METADATA = ["ResponseMetadata", ["RequestId"]]


def test_answers_have_the_shape_of_those_in_the_reference(guarded: NodeProcess) -> None:
    name = unique("queue")
    created = ask(
        guarded,
        Action="CreateQueue",
        QueueName=name,
        **{
            "Attribute.1.Name": "VisibilityTimeout",
            "Attribute.1.Value": "40",
            "Tag.1.Key": "team",
            "Tag.1.Value": "billing",
        },
    )
    assert created.tag == f"{NAMESPACE}CreateQueueResponse"
    assert shape_of(created) == [["CreateQueueResult", ["QueueUrl"]], METADATA]
    path = text_of(created, "QueueUrl").removeprefix(guarded.http_url)

    sent = ask(
        guarded,
        path,
        Action="SendMessage",
        MessageBody="a <b> & \r\n",
        **{
            "MessageAttribute.1.Name": "city",
            "MessageAttribute.1.Value.DataType": "String",
            "MessageAttribute.1.Value.StringValue": "Oslo",
        },
    )
    in_result = ["MessageId", "MD5OfMessageBody", "MD5OfMessageAttributes"]
    assert shape_of(sent) == [["SendMessageResult", in_result], METADATA]

    received = ask(
        guarded,
        path,
        Action="ReceiveMessage",
        WaitTimeSeconds="5",
        **{"AttributeName.1": "All", "MessageAttributeName.1": "city"},
    )
    in_message = [
        "MessageId",
        "ReceiptHandle",
        "MD5OfBody",
        "Body",
        ["Attribute", ["Name", "Value"]],
        ["MessageAttribute", ["Name", ["Value", ["DataType", "StringValue"]]]],
        "MD5OfMessageAttributes",
    ]
    (result, metadata) = shape_of(received)
    assert (result[0], metadata) == ("ReceiveMessageResult", METADATA)
    ((tag, members),) = result[1]
    assert tag == "Message"
    assert sorted(map(str, members)) == sorted(map(str, in_message))
    assert text_of(received, "Body") == "a <b> & \r\n"
    assert text_of(received, "MessageId") == text_of(sent, "MessageId")
    assert text_of(received, "MD5OfBody") == text_of(sent, "MD5OfMessageBody")

    handle = text_of(received, "ReceiptHandle")
    for action in ("ChangeMessageVisibility", "DeleteMessage", "DeleteMessage"):
        done = ask(guarded, path, Action=action, ReceiptHandle=handle, VisibilityTimeout="60")
        assert done.tag == f"{NAMESPACE}{action}Response"
        assert shape_of(done) == [METADATA]
    empty = ask(guarded, path, Action="ReceiveMessage")
    assert shape_of(empty) == ["ReceiveMessageResult", METADATA]


def test_a_body_that_xml_cannot_hold_is_delivered_in_an_answer_that_parses(
    guarded: NodeProcess,
) -> None:
    name = unique("queue")
    url = text_of(ask(guarded, Action="CreateQueue", QueueName=name), "QueueUrl")
    publish(guarded, name, [b"a\x01\x00b"])

    path = url.removeprefix(guarded.http_url)
    received = ask(guarded, path, Action="ReceiveMessage", WaitTimeSeconds="20")

    assert text_of(received, "Body") == "a\ufffd\ufffdb"


@pytest.mark.parametrize("body", [b"Caf\xe9", b"\xed\xa0\x80"], ids=["latin 1", "surrogate"])
def test_a_body_that_is_not_utf_8_is_refused_alone(guarded: NodeProcess, body: bytes) -> None:
    url = text_of(ask(guarded, Action="CreateQueue", QueueName=unique("queue")), "QueueUrl")
    path = url.removeprefix(guarded.http_url)
    entry = "SendMessageBatchRequestEntry"

    single = post(guarded, path, Action="SendMessage", MessageBody=body)
    batch = ask(
        guarded,
        path,
        Action="SendMessageBatch",
        **{
            f"{entry}.1.Id": "one",
            f"{entry}.1.MessageBody": body,
            f"{entry}.2.Id": "two",
            f"{entry}.2.MessageBody": "Café",
        },
    )
    named = post(guarded, Action="CreateQueue", QueueName=body)
    received = ask(guarded, path, Action="ReceiveMessage", MaxNumberOfMessages="10")

    assert single.status_code == named.status_code == 400
    assert text_of(ET.fromstring(single.text), "Code") == "InvalidMessageContents"
    assert text_of(batch, "Code") == "InvalidMessageContents"
    assert text_of(ET.fromstring(named.text), "Message") == "'QueueName' is not UTF-8"
    assert [each.text for each in received.iter(f"{NAMESPACE}Body")] == ["Café"]


def test_batches_lists_and_attributes_have_the_shape_of_those_in_the_reference(
    guarded: NodeProcess,
) -> None:
    name = unique("queue")
    url = text_of(ask(guarded, Action="CreateQueue", QueueName=name), "QueueUrl")
    path = url.removeprefix(guarded.http_url)
    entry = "SendMessageBatchRequestEntry"

    batch = ask(
        guarded,
        path,
        Action="SendMessageBatch",
        **{
            f"{entry}.1.Id": "one",
            f"{entry}.1.MessageBody": "first",
            f"{entry}.2.Id": "two",
            f"{entry}.2.MessageBody": "second",
            f"{entry}.2.DelaySeconds": "901",
        },
    )
    good = ["SendMessageBatchResultEntry", ["Id", "MessageId", "MD5OfMessageBody"]]
    bad = ["BatchResultErrorEntry", ["Id", "SenderFault", "Code", "Message"]]
    assert shape_of(batch) == [["SendMessageBatchResult", [good, bad]], METADATA]

    listed = ask(guarded, Action="ListQueues", QueueNamePrefix=name)
    assert shape_of(listed) == [["ListQueuesResult", ["QueueUrl"]], METADATA]
    assert text_of(listed, "QueueUrl") == url
    shown = ask(guarded, path, Action="GetQueueAttributes", **{"AttributeName.1": "All"})
    pair = ["Attribute", ["Name", "Value"]]
    assert shape_of(shown) == [["GetQueueAttributesResult", [pair]], METADATA]
    ask(guarded, path, Action="TagQueue", **{"Tag.1.Key": "team", "Tag.1.Value": "billing"})
    tags = ask(guarded, path, Action="ListQueueTags")
    assert shape_of(tags) == [["ListQueueTagsResult", [["Tag", ["Key", "Value"]]]], METADATA]
    assert shape_of(ask(guarded, path, Action="DeleteQueue")) == [METADATA]


def test_an_error_has_the_shape_of_those_in_the_reference(guarded: NodeProcess) -> None:
    answer = post(guarded, Action="GetQueueUrl", QueueName="nowhere")

    assert answer.status_code == 400
    error = ET.fromstring(answer.text)
    assert error.tag == f"{NAMESPACE}ErrorResponse"
    assert shape_of(error) == [["Error", ["Type", "Code", "Message", "Detail"]], "RequestId"]
    assert text_of(error, "Type") == "Sender"
    assert text_of(error, "Code") == "AWS.SimpleQueueService.NonExistentQueue"


def _client(node: NodeProcess, key: str, secret: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=node.http_url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
    )


def test_boto3_is_let_in_with_the_right_secret_only(guarded: NodeProcess) -> None:
    sqs = _client(guarded, KEY, SECRET)
    url = sqs.create_queue(QueueName=unique("queue"))["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="héllo")
    assert sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"][0]["Body"] == "héllo"

    for key, secret, code in (
        (KEY, "another", "SignatureDoesNotMatch"),
        ("AKIDANOTHER", SECRET, "InvalidClientTokenId"),
    ):
        with pytest.raises(ClientError) as caught:
            _client(guarded, key, secret).list_queues()
        assert caught.value.response["Error"]["Code"] == code
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_what_is_not_signed_or_was_changed_on_the_way_is_refused(guarded: NodeProcess) -> None:
    def code(answer: httpx.Response) -> tuple[int, str]:
        return answer.status_code, text_of(ET.fromstring(answer.text), "Code")

    body = urlencode({"Action": "ListQueues"})
    unsigned = httpx.post(guarded.http_url, content=body)
    assert code(unsigned) == (403, "MissingAuthenticationToken")
    odd = httpx.post(guarded.http_url, content=body, headers={"Authorization": "Basic eA=="})
    assert code(odd) == (400, "IncompleteSignature")

    request = AWSRequest("POST", guarded.http_url + "/", {}, body)
    SigV4Auth(Credentials(KEY, SECRET), "sqs", "us-east-1").add_auth(request)
    headers = dict(request.headers)
    assert httpx.post(request.url, content=body, headers=headers).status_code == 200
    changed = httpx.post(request.url, content=body + "&x=1", headers=headers)
    assert code(changed) == (403, "SignatureDoesNotMatch")
    headers["X-Amz-Date"] = "20200101T000000Z"
    assert code(httpx.post(request.url, content=body, headers=headers)) == (
        403,
        "SignatureDoesNotMatch",
    )


def presigned(node: NodeProcess, path: str = "/", *, expires_s: int = 60, **fields: str) -> str:
    """An address that was signed for somebody else to use."""
    address = f"{node.http_url}{path}?{urlencode({**fields, 'Version': '2012-11-05'})}"
    request = AWSRequest("GET", address, {}, b"")
    credentials = Credentials(KEY, SECRET)
    SigV4QueryAuth(credentials, "sqs", "us-east-1", expires=expires_s).add_auth(request)
    return str(request.url)


def test_a_signed_address_is_let_in_with_get(guarded: NodeProcess) -> None:
    name = unique("queue")
    url = text_of(ask(guarded, Action="CreateQueue", QueueName=name), "QueueUrl")
    path = url.removeprefix(guarded.http_url)

    for at, fields in (("/", {"QueueUrl": url}), (path, {})):
        sent = httpx.get(
            presigned(guarded, at, Action="SendMessage", MessageBody="a b+c~é", **fields)
        )
        received = httpx.get(presigned(guarded, at, Action="ReceiveMessage", **fields))

        assert sent.status_code == 200, sent.text
        assert text_of(ET.fromstring(received.text), "Body") == "a b+c~é"


def test_a_signed_address_that_was_changed_or_has_expired_is_refused(guarded: NodeProcess) -> None:
    def refusal(address: str) -> tuple[int, str]:
        answer = httpx.get(address)
        return answer.status_code, text_of(ET.fromstring(answer.text), "Code")

    address = presigned(guarded, Action="ListQueues")
    assert httpx.get(address).status_code == 200
    wrong = (403, "SignatureDoesNotMatch")

    assert refusal(address + "&QueueNamePrefix=a") == wrong
    assert refusal(address.replace("X-Amz-Expires=60", "X-Amz-Expires=61")) == wrong
    assert refusal(address[:-1] + "%C3%A9") == wrong
    long_ago = re.sub("X-Amz-Date=[0-9]{8}", "X-Amz-Date=20200101", address)
    assert refusal(long_ago) == wrong
    too_long = address.replace("X-Amz-Expires=60", "X-Amz-Expires=604801")
    assert refusal(too_long) == (400, "IncompleteSignature")

"""Bytes of the SQS API: AWS JSON 1.0, and the older query protocol with answers in XML.

Both say the same, so requests of both are decoded into the shape that JSON has, and answers of that
shape are encoded for the one who asked. In the query protocol lists and maps are numbered:
`Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=30`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec

from penstock.protocols.sqs.attributes import without_characters_beyond_xml
from penstock.protocols.sqs.checksums import md5_of_body
from penstock.protocols.sqs.errors import ErrorCode, SqsError

JSON_TYPE = "application/x-amz-json-1.0"
XML_TYPE = "text/xml"
_TARGET_PREFIX = "AmazonSQS."
_NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_NUMBERED_MAX = 1_000
# Fields of the query protocol whose text is checked where it becomes part of a message.
_CONTENTS = ("MessageBody", "StringValue")
_SURROGATE = re.compile("[\ud800-\udfff]")
# Actions whose answer in XML says no more than that they were carried out.
_WITHOUT_RESULT = frozenset(
    (
        "AddPermission",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "DeleteQueue",
        "PurgeQueue",
        "RemovePermission",
        "SetQueueAttributes",
        "TagQueue",
        "UntagQueue",
    )
)

# Names in the query protocol, and the lists and maps that they are called in JSON.
_LISTS = {
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "AttributeName": "AttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "TagKey": "TagKeys",
    "SendMessageBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
}
_MAPS = {
    "Attribute": ("Attributes", "Name", "Value"),
    "MessageAttribute": ("MessageAttributes", "Name", "Value"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name", "Value"),
    "Tag": ("Tags", "Key", "Value"),
    "Tags": ("Tags", "Key", "Value"),
}
# Lists in answers, and the names of their elements in XML.
_ELEMENTS = {
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
}
_ELEMENT_MAPS = {
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "Tags": ("Tag", "Key", "Value"),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request: what to do, with what, and how to answer."""

    action: str
    parameters: dict[str, Any]
    is_json: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, ready to be sent."""

    status: int
    body: bytes
    headers: dict[str, str]


def decode_call(headers: Mapping[str, str], body: bytes, query: str) -> Call:
    """Read a request of either protocol; `headers` have lower-case names."""
    target = headers.get("x-amz-target")
    if target is not None:
        return _decode_json(target, body)
    fields = _fields(body, query)
    action = fields.pop("Action", "")
    if not action:
        raise SqsError(SqsError.INVALID_ACTION, "The request names no Action")
    return Call(action, _unfold(fields), is_json=False)


def _decode_json(target: str, body: bytes) -> Call:
    if not target.startswith(_TARGET_PREFIX):
        raise SqsError(SqsError.INVALID_ACTION, f"X-Amz-Target is {target[:80]!r}")
    try:
        parameters = msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SqsError(SqsError.MALFORMED, f"The body cannot be read: {error}") from None
    except RecursionError:
        reason = "The body cannot be read: it is nested too deeply"
        raise SqsError(SqsError.MALFORMED, reason) from None
    return Call(target.removeprefix(_TARGET_PREFIX), parameters, is_json=True)


def _fields(body: bytes, query: str) -> dict[str, str]:
    """Read the fields of the query protocol.

    Bytes that are not UTF-8 become surrogates, which messages cannot hold. So those in a message
    fail with it, and with it alone where many are sent.
    """
    text = body.decode(errors="surrogateescape")
    try:
        fields = parse_qsl(
            f"{query}&{text}" if text else query, keep_blank_values=True, errors="surrogateescape"
        )
    except ValueError as error:
        raise SqsError(SqsError.MALFORMED, f"The request cannot be read: {error}") from None
    for name, value in fields:
        is_content = name.endswith(_CONTENTS)
        if _SURROGATE.search(name) or (not is_content and _SURROGATE.search(value)):
            raise SqsError(SqsError.MALFORMED, f"{name[:80]!r} is not UTF-8")
    return dict(fields)


def _unfold(fields: Mapping[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in fields.items():
        place = tree
        *parents, last = name.split(".")
        for parent in parents:
            inner = place.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise SqsError(SqsError.MALFORMED, f"{name[:80]} is given in two ways")
            place = inner
        place[last] = value
    return _shape(tree)


def _shape(tree: Mapping[str, Any]) -> dict[str, Any]:
    shaped: dict[str, Any] = {}
    for name, content in tree.items():
        if not isinstance(content, dict):
            # A list of one may be written without its number.
            shaped[_LISTS.get(name, name)] = [content] if name in _LISTS else content
        elif name in _LISTS:
            shaped[_LISTS[name]] = [
                _shape(each) if isinstance(each, dict) else each
                for each in _numbered(name, content)
            ]
        elif name in _MAPS:
            into, key, value = _MAPS[name]
            shaped[into] = _map_of(name, content, key, value)
        else:
            shaped[name] = _shape(content)
    return shaped


def _numbered(name: str, content: Mapping[str, Any]) -> list[Any]:
    if len(content) > _NUMBERED_MAX or not all(number.isdecimal() for number in content):
        raise SqsError(SqsError.MALFORMED, f"{name} is not numbered from 1 to {_NUMBERED_MAX}")
    return [content[number] for number in sorted(content, key=int)]


def _map_of(name: str, content: Mapping[str, Any], key: str, value: str) -> dict[str, Any]:
    entries = {}
    for entry in _numbered(name, content):
        if not isinstance(entry, dict) or key not in entry:
            raise SqsError(SqsError.MISSING_PARAMETER, f"{name} needs a {key}")
        found = entry.get(value, "")
        entries[entry[key]] = _shape(found) if isinstance(found, dict) else found
    return entries


def encode_reply(call: Call, answer: Mapping[str, Any], request_id: str) -> Reply:
    """Write an answer."""
    if call.is_json:
        body = msgspec.json.encode(answer) if answer else b"{}"
        return Reply(200, body, {"Content-Type": JSON_TYPE, "x-amzn-RequestId": request_id})
    result = ""
    if call.action not in _WITHOUT_RESULT:
        elements = "".join(_elements(call.action, answer))
        result = f"<{call.action}Result>{elements}</{call.action}Result>"
    xml = (
        f'<?xml version="1.0"?><{call.action}Response xmlns="{_NAMESPACE}">{result}'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        f"</{call.action}Response>"
    )
    return Reply(200, xml.encode(), {"Content-Type": XML_TYPE, "x-amzn-RequestId": request_id})


def encode_error(code: ErrorCode, message: str, request_id: str, *, is_json: bool) -> Reply:
    """Write an error."""
    headers = {"x-amzn-RequestId": request_id}
    if is_json:
        body = msgspec.json.encode({"__type": f"com.amazonaws.sqs#{code.name}", "message": message})
        headers |= {
            "Content-Type": JSON_TYPE,
            "x-amzn-query-error": f"{code.query_code};{code.fault}",
        }
        return Reply(code.status, body, headers)
    xml = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{_NAMESPACE}"><Error>'
        f"<Type>{code.fault}</Type><Code>{escape(code.query_code)}</Code>"
        f"<Message>{_text(message)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return Reply(code.status, xml.encode(), headers | {"Content-Type": XML_TYPE})


def _elements(action: str, content: Mapping[str, Any]) -> Iterable[str]:
    for name, value in content.items():
        if name == "Successful":
            name = f"{action}ResultEntry"
            yield from (_element(action, name, each) for each in value)
        elif name == "Messages":
            yield from (_element(action, "Message", _in_xml(each)) for each in value)
        elif name in _ELEMENTS:
            yield from (_element(action, _ELEMENTS[name], each) for each in value)
        elif name in _ELEMENT_MAPS:
            entry, key_name, value_name = _ELEMENT_MAPS[name]
            for key, each in value.items():
                inner = {key_name: key, value_name: each}
                yield _element(action, entry, inner)
        else:
            yield _element(action, name, value)


def _element(action: str, name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return f"<{name}>{''.join(_elements(action, value))}</{name}>"
    if isinstance(value, bool):
        return f"<{name}>{str(value).lower()}</{name}>"
    return f"<{name}>{_text(str(value))}</{name}>"


def _in_xml(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message as XML can hold it, with the checksum of what the receiver gets."""
    body = without_characters_beyond_xml(message["Body"])
    if body == message["Body"]:
        return message
    return {**message, "Body": body, "MD5OfBody": md5_of_body(body.encode())}


def _text(text: str) -> str:
    # A carriage return that is not escaped would be read as a line feed.
    return escape(without_characters_beyond_xml(text), {"\r": "&#13;", '"': "&quot;"})

"""Message attributes: typed values beside a body, kept as record headers.

The name of an attribute is the header's name and its content the header's value, so that readers of
every door see them. The type is kept in one more header when it is not plain text.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.protocols.sqs.errors import SqsError

TYPES_HEADER = "penstock-sqs-types"
SENT_HEADER = "penstock-sqs-sent"
# The key of a record is another one when its message has died or was moved; its id is the same.
DEDUPLICATION_HEADER = "penstock-sqs-deduplication-id"
OWN_PREFIX = "penstock-"
TRACE_HEADER = "AWSTraceHeader"
ATTRIBUTES_MAX = 10
_NAME = re.compile(r"(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_TYPE = re.compile(r"(String|Number|Binary)(\.[^\x00-\x1f]{1,249})?")

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class MessageAttribute:
    """One typed value; `content` is its text in UTF-8, or its bytes."""

    data_type: str
    content: bytes

    @property
    def is_binary(self) -> bool:
        """True when the content is not text."""
        return self.data_type.startswith("Binary")

    def shown(self) -> dict[str, str]:
        """Return the attribute as JSON."""
        if self.is_binary:
            content = b64encode(self.content).decode()
            return {"DataType": self.data_type, "BinaryValue": content}
        text = self.content.decode(errors="replace")
        return {"DataType": self.data_type, "StringValue": text}


def read_attributes(given: Any) -> dict[str, MessageAttribute]:
    """Check the attributes of a message that is sent."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise SqsError(SqsError.INVALID_PARAMETER, "MessageAttributes is not an object")
    if len(given) > ATTRIBUTES_MAX:
        raise SqsError(
            SqsError.INVALID_PARAMETER,
            f"Number of message attributes [{len(given)}] exceeds the allowed maximum"
            f" [{ATTRIBUTES_MAX}].",
        )
    return {name: _read_attribute(name, value) for name, value in given.items()}


def _read_attribute(name: str, value: Any) -> MessageAttribute:
    lower = name.lower()
    if _NAME.fullmatch(name) is None or lower.startswith(("aws.", "amazon.")):
        raise _invalid(f"The message attribute name {name[:80]!r} is invalid")
    if lower.startswith(OWN_PREFIX):
        raise _invalid(
            f"The message attribute name {name[:80]!r} is invalid: names that begin with"
            f" {OWN_PREFIX} are kept for headers that have a meaning of their own"
        )
    data_type = value.get("DataType") if isinstance(value, dict) else None
    if not isinstance(data_type, str) or not data_type:
        raise _invalid(f"The message attribute '{name}' must contain a non-empty attribute type")
    if _TYPE.fullmatch(data_type) is None:
        raise _invalid(
            f"The message attribute '{name}' has an invalid message attribute type, the set of"
            " supported type prefixes is Binary, Number, and String."
        )
    field = "BinaryValue" if data_type.startswith("Binary") else "StringValue"
    content = value.get(field)
    if not isinstance(content, str) or not content:
        raise _invalid(
            f"The message attribute '{name}' must contain a non-empty {field} for the attribute"
            f" type '{data_type}'"
        )
    if field == "BinaryValue":
        return MessageAttribute(data_type, _bytes(name, content))
    if data_type.startswith("Number"):
        _check_number(name, content)
    return MessageAttribute(data_type, check_text(f"attribute {name}", content))


def _bytes(name: str, content: str) -> bytes:
    try:
        return b64decode(content, validate=True)
    except (Base64Error, ValueError):
        raise _invalid(f"The message attribute '{name}' is not base64") from None


def _check_number(name: str, content: str) -> None:
    if _NUMBER.fullmatch(content) is None:
        raise _invalid(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def check_text(name: str, text: str) -> bytes:
    """Return text as UTF-8; characters that XML cannot hold are refused, as they are by AWS."""
    if _BEYOND_XML.search(text) is not None:
        raise SqsError(
            SqsError.INVALID_CONTENTS,
            f"{name} holds characters outside #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD"
            " | #x10000 to #x10FFFF",
        )
    return text.encode()


def without_characters_beyond_xml(text: str) -> str:
    """Return text that XML can hold, with U+FFFD for what it cannot."""
    return _BEYOND_XML.sub("\ufffd", text)


_BEYOND_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _invalid(message: str) -> SqsError:
    return SqsError(SqsError.INVALID_PARAMETER, message)


def size_of_attributes(attributes: Mapping[str, MessageAttribute]) -> int:
    """Return what attributes add to the size of their message: names, types and values."""
    return sum(
        len(name) + len(each.data_type.encode()) + len(each.content)
        for name, each in attributes.items()
    )


def to_headers(attributes: Mapping[str, MessageAttribute]) -> Headers:
    """Return the headers that keep attributes."""
    headers: list[tuple[str, bytes | None]] = [
        (name, attribute.content) for name, attribute in attributes.items()
    ]
    types = {
        name: attribute.data_type
        for name, attribute in attributes.items()
        if attribute.data_type != "String"
    }
    if types:
        headers.append((TYPES_HEADER, msgspec.json.encode(types)))
    return tuple(headers)


def from_headers(headers: Headers) -> dict[str, MessageAttribute]:
    """Return the attributes that headers keep; those of other doors are text or bytes.

    Any client can write any header, so a type that does not fit its content counts for nothing.
    """
    types: dict[str, str] = {}
    for name, content in headers:
        if name == TYPES_HEADER and content:
            types = _read_types(content)
    return {
        name: MessageAttribute(_type_of(types.get(name, "String"), content), content)
        for name, content in headers
        if content and not name.startswith(OWN_PREFIX) and name != TRACE_HEADER
    }


def _read_types(content: bytes) -> dict[str, str]:
    try:
        types = msgspec.json.decode(content, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {name: each for name, each in types.items() if _TYPE.fullmatch(each) is not None}


def _type_of(kept: str, content: bytes) -> str:
    if kept.startswith("Binary"):
        return kept
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "Binary"
    return "Binary" if _BEYOND_XML.search(text) is not None else kept


def wanted(names: Iterable[str], attributes: Mapping[str, MessageAttribute]) -> list[str]:
    """Return the names of the attributes that a receiver asks for: by name, prefix or all."""
    chosen = []
    patterns = list(names)
    for name in attributes:
        for pattern in patterns:
            if pattern in ("All", ".*", name):
                chosen.append(name)
                break
            if pattern.endswith(".*") and name.startswith(pattern[:-1]):
                chosen.append(name)
                break
    return chosen

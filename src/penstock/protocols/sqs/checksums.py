"""The MD5 sums by which SDKs check that a message arrived as it was sent."""

import struct
from collections.abc import Mapping
from hashlib import md5

from penstock.protocols.sqs.attributes import MessageAttribute

_LENGTH = struct.Struct(">I")
_TEXT = b"\x01"
_BINARY = b"\x02"


def md5_of_body(body: bytes) -> str:
    """Return the sum of a body."""
    return md5(body, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, MessageAttribute]) -> str | None:
    """Return the sum of message attributes, in the order of their names; None without any."""
    if not attributes:
        return None
    digest = md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        for part in (name.encode(), attribute.data_type.encode()):
            digest.update(_LENGTH.pack(len(part)) + part)
        kind = _BINARY if attribute.is_binary else _TEXT
        digest.update(kind + _LENGTH.pack(len(attribute.content)) + attribute.content)
    return digest.hexdigest()

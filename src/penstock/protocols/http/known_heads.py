"""Heads of requests that were read before.

A client sends the same head with each of its requests, but for the length of the body. To read one
again costs a good part of what a small request costs altogether, so what a head asks for is kept
under its bytes, and found by them.

A head is kept, or found, only when the bytes at hand are one request from its first byte to its
last. The length is left out of what is compared; everything else must be the same to the letter.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.protocols.http.endpoints import Shortcut

_HEADS_MAX = 1_024
_HEAD_BYTES_MAX = 2_048
# The end of the length's name and its beginning; who sends it chooses the case.
_MARK = b"ength: "
_NAME = b"\r\ncontent-l"
_DIGITS_MAX = 12

Head = tuple[bytes, bytes]
"""What stands before the digits of the length, and behind them."""


class Errand(NamedTuple):
    """What a request is for, but for its body."""

    goal: Shortcut
    names: Mapping[str, str]


def whole_request(data: bytes) -> tuple[Head, bytes] | None:
    """Return head and body of a request that is here from its first byte to its last; else None.

    Whoever learns a head must make sure that the bytes are one request. For those that begin like
    it that is proof enough.
    """
    head, end, body = data.partition(b"\r\n\r\n")
    before, _, after = head.rpartition(_MARK)
    digits, _, behind = after.partition(b"\r\n")
    if (
        end
        and digits.isdigit()
        and len(digits) <= _DIGITS_MAX
        and int(digits) == len(body)
        and before[-len(_NAME) :].lower() == _NAME
    ):
        return (before, behind), body
    return None


class KnownHeads:
    """Errands by the heads of their requests, of all connections together."""

    def __init__(self) -> None:
        self._errands: dict[Head, Errand] = {}
        self.find = self._errands.get
        """Return the errand of a head, or None when it was not learned."""

    def learn(self, head: Head, errand: Errand) -> None:
        """Keep what a head asks for; when there are too many, all are forgotten."""
        if len(head[0]) + len(head[1]) > _HEAD_BYTES_MAX:
            return
        if len(self._errands) >= _HEADS_MAX:
            self._errands.clear()
        self._errands[head] = errand

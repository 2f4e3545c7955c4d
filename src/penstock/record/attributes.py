"""What a record's headers say about its delivery.

Any client can write these headers, so their values are checked where records come in. Values are
ASCII text: a priority is `0` to `9`, or `low`, `normal`, `high`; a time is milliseconds since the
epoch or ISO 8601 (UTC where it names no zone).
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from penstock.errors import InvalidRecords, InvalidRequest
from penstock.record.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, Buffer
from penstock.record.compression import decompress
from penstock.record.records import Record

PREFIX = "penstock-"
ID = "penstock-id"
PRIORITY = "penstock-priority"
DELIVER_AT = "penstock-deliver-at"
EXPIRES_AT = "penstock-expires-at"
IDEMPOTENCY_KEY = "penstock-idempotency-key"

PRIORITY_NORMAL = 4
PRIORITY_MAX = 9
_PRIORITY_NAMES = {"low": 1, "normal": PRIORITY_NORMAL, "high": 7}
IDEMPOTENCY_KEY_BYTES_MAX = 512
# The last millisecond of the year 9999, which is as far as ISO 8601 goes.
TIME_MS_MAX = 253_402_300_799_999
_TIME_TEXT_MAX = 40
# The faults of a batch are told up to here, so that the answer is not larger than the request.
FAULTS_MAX = 100

Headers = Iterable[tuple[str, bytes | None]]


class Attributes(msgspec.Struct, frozen=True):
    """The attributes of one record; what its headers do not say is None."""

    priority: int = PRIORITY_NORMAL
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    idempotency_key: str | None = None
    id: str | None = None


NO_ATTRIBUTES = Attributes()
_search = re.compile(PREFIX.encode()).search


def batch_may_have_attributes(header: BatchHeader, batch: Buffer) -> bool:
    """False when no record of a stored batch can have an attribute.

    Bytes that are no records say nothing, and neither do those that are too many to be looked at.
    """
    try:
        return new_batch_may_have_attributes(header, batch)
    except InvalidRequest:
        return False


def new_batch_may_have_attributes(header: BatchHeader, batch: Buffer) -> bool:
    """The same of a batch that is to be stored: one search, nothing is decoded.

    Raises `InvalidBatch` when it cannot be unpacked, and `BatchTooLarge` when that is too much.
    """
    if not header.attributes & CODEC_MASK:
        return _search(batch) is not None
    return _search(decompress(header.codec, memoryview(batch)[HEADER_BYTES:])) is not None


def attributes_of(headers: Headers) -> Attributes:
    """Read the attributes; raise `InvalidRequest` on a value that cannot be used.

    The last of several headers with the same name counts.
    """
    found: dict[str, int | str] = {}
    for name, value in headers:
        if not name.startswith(PREFIX):
            continue
        if name == PRIORITY:
            found["priority"] = parse_priority(_text(name, value))
        elif name == DELIVER_AT:
            found["deliver_at_ms"] = parse_time_ms(name, _text(name, value))
        elif name == EXPIRES_AT:
            found["expires_at_ms"] = parse_time_ms(name, _text(name, value))
        elif name == IDEMPOTENCY_KEY:
            found["idempotency_key"] = checked_idempotency_key(_text(name, value))
        elif name == ID:
            found["id"] = _text(name, value)
    return Attributes(**found) if found else NO_ATTRIBUTES  # type: ignore[arg-type]


def attributes_of_all(records: Iterable[Record]) -> list[Attributes]:
    """Read the attributes of a batch; raise `InvalidRecords` with each value that is of no use."""
    found: list[Attributes] = []
    faults: dict[int, str] = {}
    for place, record in enumerate(records):
        try:
            found.append(attributes_of(record.headers))
        except InvalidRequest as error:
            faults[place] = str(error)
            if len(faults) == FAULTS_MAX:
                break
    if faults:
        raise InvalidRecords.of(faults)
    return found


def parse_priority(text: str) -> int:
    """Read a priority: a digit or a name."""
    priority = _PRIORITY_NAMES.get(text)
    if priority is not None:
        return priority
    if len(text) == 1 and text.isascii() and text.isdigit():
        return int(text)
    raise InvalidRequest(
        f"{PRIORITY} is {text[:40]!r}, not 0 to {PRIORITY_MAX} or {', '.join(_PRIORITY_NAMES)}"
    )


def parse_time_ms(name: str, text: str) -> int:
    """Read a time: milliseconds since the epoch or ISO 8601."""
    if len(text) <= _TIME_TEXT_MAX:
        time_ms = int(text) if text.isascii() and text.isdigit() else _iso_ms(text)
        if time_ms is not None and 0 <= time_ms <= TIME_MS_MAX:
            return time_ms
    raise InvalidRequest(
        f"{name} is {text[:_TIME_TEXT_MAX]!r}, not milliseconds since the epoch up to"
        f" {TIME_MS_MAX} or an ISO 8601 time"
    )


def checked_idempotency_key(key: str) -> str:
    """Return the key; raise when it is empty or too long."""
    size_bytes = len(key.encode())
    if not 0 < size_bytes <= IDEMPOTENCY_KEY_BYTES_MAX:
        raise InvalidRequest(
            f"{IDEMPOTENCY_KEY} has {size_bytes} bytes, not 1 to {IDEMPOTENCY_KEY_BYTES_MAX}"
        )
    return key


def _iso_ms(text: str) -> int | None:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        # Upwards: a record is never delivered before its time.
        return -(-int(time.timestamp() * 1_000_000) // 1_000)
    except (ValueError, OverflowError):
        return None


def _text(name: str, value: bytes | None) -> str:
    try:
        return (value or b"").decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{name} is {value!r}, which is not text") from error

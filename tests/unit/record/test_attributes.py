import pytest

from penstock.errors import InvalidBatch, InvalidRecords, InvalidRequest
from penstock.record import (
    FAULTS_MAX,
    HEADER_BYTES,
    NO_ATTRIBUTES,
    PRIORITY,
    Attributes,
    Codec,
    Record,
    attributes_of,
    attributes_of_all,
    batch_may_have_attributes,
    encode_batch,
    new_batch_may_have_attributes,
    read_header,
)


def test_headers_of_others_say_nothing_about_delivery() -> None:
    headers = (("traceparent", b"00-1"), ("penstock", b"1"), ("penstock-unknown", b"\xff"))

    assert attributes_of(headers) is NO_ATTRIBUTES


def test_all_attributes_are_read() -> None:
    found = attributes_of(
        (
            ("penstock-priority", b"high"),
            ("penstock-deliver-at", b"1700000000123"),
            ("penstock-expires-at", b"2023-11-14T22:13:20.5Z"),
            ("penstock-idempotency-key", "größe".encode()),
            ("penstock-id", b"0-s5-1"),
        )
    )

    assert found == Attributes(7, 1_700_000_000_123, 1_700_000_000_500, "größe", "0-s5-1")


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        (b"0", 0),
        (b"1970-01-01", 0),
        (b"1970-01-01T00:00:01", 1000),
        (b"1970-01-01T01:00:01+01:00", 1000),
        (b"1970-01-01T00:00:00.0015Z", 2),
        (b"253402300799999", 253_402_300_799_999),
    ],
)
def test_times_are_milliseconds_or_iso_8601_and_never_early(text: bytes, time_ms: int) -> None:
    assert attributes_of([("penstock-deliver-at", text)]).deliver_at_ms == time_ms


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("penstock-priority", b"10"),
        ("penstock-priority", b"-1"),
        ("penstock-priority", b"urgent"),
        ("penstock-priority", b""),
        ("penstock-priority", None),
        ("penstock-priority", "٣".encode()),
        ("penstock-deliver-at", b"tomorrow"),
        ("penstock-deliver-at", b"253402300800000"),
        ("penstock-deliver-at", b"9" * 5000),
        ("penstock-expires-at", b"-5"),
        ("penstock-expires-at", b"\xff\xfe"),
        ("penstock-idempotency-key", b""),
        ("penstock-idempotency-key", b"k" * 513),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(name: str, value: bytes | None) -> None:
    with pytest.raises(InvalidRequest, match=name):
        attributes_of([(name, value)])


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_with_attributes_is_found_under_every_codec(codec: Codec) -> None:
    plain = Record(0, 0, None, b"x" * 500)
    urgent = Record(1, 0, None, b"x" * 500, (("penstock-priority", b"9"),))

    for records in ([plain, urgent], [plain]):
        batch = encode_batch(records, codec=codec)
        assert batch_may_have_attributes(read_header(batch), batch) == (urgent in records)


def test_compressed_bytes_that_are_no_records_say_nothing() -> None:
    batch = encode_batch([Record(0, 0, None, b"penstock-")], codec=Codec.ZSTD)
    batch[HEADER_BYTES:] = bytes(len(batch) - HEADER_BYTES)

    assert not batch_may_have_attributes(read_header(batch), batch)
    with pytest.raises(InvalidBatch):
        new_batch_may_have_attributes(read_header(batch), batch)


def test_every_record_of_a_batch_that_cannot_be_stored_is_named_up_to_a_limit() -> None:
    bad = Record(0, 0, None, b"", ((PRIORITY, b"42"),))
    good = Record(0, 0, None, b"", ((PRIORITY, b"7"),))

    assert [each.priority for each in attributes_of_all([good, good])] == [7, 7]
    with pytest.raises(InvalidRecords, match=r"^record 1 of the batch: .*'42', .*, and 1 more"):
        attributes_of_all([good, bad, good, bad])
    with pytest.raises(InvalidRecords) as refusal:
        attributes_of_all([bad] * (FAULTS_MAX + 1))

    assert list(refusal.value.faults) == list(range(FAULTS_MAX))
    assert "not 0 to 9" in refusal.value.faults[3]

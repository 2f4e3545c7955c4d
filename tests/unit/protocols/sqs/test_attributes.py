from hashlib import md5
from typing import Any

import pytest

from penstock.protocols.sqs.attributes import (
    TYPES_HEADER,
    MessageAttribute,
    check_text,
    from_headers,
    read_attributes,
    size_of_attributes,
    to_headers,
    wanted,
)
from penstock.protocols.sqs.checksums import md5_of_attributes
from penstock.protocols.sqs.errors import SqsError

ATTRIBUTES = {
    "city": MessageAttribute("String", b"Any City"),
    "count": MessageAttribute("Number.int", b"1"),
    "raw": MessageAttribute("Binary", b"\xff\x00"),
}


def test_attributes_survive_as_headers() -> None:
    assert from_headers(to_headers(ATTRIBUTES)) == ATTRIBUTES


def test_names_types_and_values_of_attributes_have_a_size() -> None:
    assert size_of_attributes({}) == 0
    text = "cityStringAny City" + "countNumber.int1" + "rawBinary"
    assert size_of_attributes(ATTRIBUTES) == len(text) + 2


def test_headers_of_other_doors_are_text_or_bytes_and_our_own_are_hidden() -> None:
    headers = (("a", b"text"), ("b", b"\xff"), ("penstock-priority", b"7"), ("c", None))

    assert from_headers(headers) == {
        "a": MessageAttribute("String", b"text"),
        "b": MessageAttribute("Binary", b"\xff"),
    }


@pytest.mark.parametrize(
    "types", [b"notjson", b"[]", b'{"a": 1}', b'{"a": "Bool"}', b"\xff", b'{"\xff": "Number"}']
)
def test_types_that_cannot_be_read_leave_headers_as_text_or_bytes(types: bytes) -> None:
    headers = (("a", b"text"), ("b", b"\xff"), (TYPES_HEADER, types))

    assert from_headers(headers) == {
        "a": MessageAttribute("String", b"text"),
        "b": MessageAttribute("Binary", b"\xff"),
    }


def test_a_header_that_is_no_text_is_binary_whatever_its_type_says() -> None:
    headers = (("a", b"\xff"), ("b", b"a\x01"), (TYPES_HEADER, b'{"a": "Number", "b": "String"}'))

    assert {each.data_type for each in from_headers(headers).values()} == {"Binary"}


def test_the_checksum_is_that_of_lengths_names_types_and_contents_by_name() -> None:
    given = {
        "b": {"DataType": "Binary", "BinaryValue": "/wA="},
        "a": {"DataType": "String", "StringValue": "value"},
    }

    bytes_of_a = b"\0\0\0\1a\0\0\0\6String\1\0\0\0\5value"
    bytes_of_b = b"\0\0\0\1b\0\0\0\6Binary\2\0\0\0\2\xff\0"
    expected = md5(bytes_of_a + bytes_of_b, usedforsecurity=False).hexdigest()
    assert md5_of_attributes(read_attributes(given)) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", {"DataType": "String", "StringValue": "v"}),
        ("aws.x", {"DataType": "String", "StringValue": "v"}),
        (".x", {"DataType": "String", "StringValue": "v"}),
        ("a..b", {"DataType": "String", "StringValue": "v"}),
        ("x", {"StringValue": "v"}),
        ("x", {"DataType": "Bool", "StringValue": "v"}),
        ("x", {"DataType": "String"}),
        ("x", {"DataType": "Binary", "BinaryValue": "?"}),
        ("x", "text"),
        ("penstock-foo", {"DataType": "String", "StringValue": "v"}),
        ("Penstock-Foo", {"DataType": "String", "StringValue": "v"}),
        ("x", {"DataType": "Number", "StringValue": "abc"}),
        ("x", {"DataType": "Number.int", "StringValue": "1e"}),
    ],
)
def test_bad_attributes_are_refused(name: str, value: Any) -> None:
    with pytest.raises(SqsError):
        read_attributes({name: value})


@pytest.mark.parametrize("number", ["0", "-1.50", "+.5", "1e-7", "38E+3"])
def test_numbers_are_taken_as_they_are_written(number: str) -> None:
    given = {"x": {"DataType": "Number", "StringValue": number}}

    assert read_attributes(given)["x"].content == number.encode()


def test_characters_that_xml_cannot_hold_are_refused() -> None:
    assert check_text("body", "tab\t and \U0001f600") == "tab\t and \U0001f600".encode()
    with pytest.raises(SqsError, match="body holds"):
        check_text("body", "\x00")


@pytest.mark.parametrize(
    ("asked", "given"),
    [(["All"], ["city", "count", "raw"]), (["c.*"], []), (["count"], ["count"]), ([], [])],
)
def test_receivers_choose_attributes_by_name_prefix_or_all(
    asked: list[str], given: list[str]
) -> None:
    assert wanted(asked, ATTRIBUTES) == given

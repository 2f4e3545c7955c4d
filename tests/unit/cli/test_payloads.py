"""What `penstock produce` publishes."""

import io
from pathlib import Path

import pytest

from penstock.cli.payloads import Sources, split_keys, with_key
from penstock.errors import InvalidRequest


def values_of(sources: Sources, stdin: bytes = b"") -> list[bytes | None]:
    return [each.value for each in sources.payloads(io.BytesIO(stdin))]


def test_lines_of_standard_input_are_read_when_nothing_is_named() -> None:
    assert values_of(Sources(), b"one\ntwo\r\n\nlast") == [b"one", b"two", b"", b"last"]


def test_standard_input_is_left_alone_when_something_is_named() -> None:
    assert values_of(Sources(values=["x"]), b"ignored\n") == [b"x"]


def test_values_files_and_tombstones_come_in_a_fixed_order(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"1\n2\n")
    sources = Sources(values=["ä"], line_files=[file], value_files=[file], has_tombstone=True)

    assert values_of(sources) == ["ä".encode(), b"1", b"2", b"1\n2\n", None]


def test_a_value_is_published_as_the_bytes_that_were_typed() -> None:
    typed = b"\xff\xc3\xa4".decode(errors="surrogateescape")

    assert values_of(Sources(values=[typed])) == [b"\xff\xc3\xa4"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"none cannot be read: No such file"):
        values_of(Sources(line_files=[tmp_path / "none"]))


def test_every_message_gets_the_key_of_the_command() -> None:
    payloads = with_key(Sources(values=["a", "b"]).payloads(io.BytesIO()), b"k")

    assert [(each.key, each.value) for each in payloads] == [(b"k", b"a"), (b"k", b"b")]


def test_a_line_is_split_at_its_first_separator() -> None:
    payloads = split_keys(Sources().payloads(io.BytesIO(b"k::v::w\n::x\n")), b"::")

    assert [(each.key, each.value) for each in payloads] == [(b"k", b"v::w"), (b"", b"x")]


def test_a_line_without_a_separator_is_named_after_those_before_it_are_given() -> None:
    payloads = split_keys(Sources().payloads(io.BytesIO(b"a:1\nb\n")), b":")

    assert next(payloads).key == b"a"
    with pytest.raises(InvalidRequest, match="line 2 of standard input has no key separator ':'"):
        next(payloads)

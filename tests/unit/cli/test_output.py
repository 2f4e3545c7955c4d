"""Tables for people, JSON for programs."""

import errno
import io
import json
from dataclasses import dataclass

import pytest

from penstock.cli.output import Branch, Grid, Output, OutputError


@dataclass(frozen=True)
class Thing:
    name: str
    size: int | None


def shown(value: object, *parts: str | Grid, as_json: bool = False) -> str:
    stream = io.BytesIO()
    Output(as_json=as_json, stream=stream).show(value, *parts)
    return stream.getvalue().decode()


def test_programs_get_one_line_of_json_and_no_table() -> None:
    text = shown([Thing("a", None)], Grid(("name",), [("a",)]), as_json=True)

    assert json.loads(text) == [{"name": "a", "size": None}]
    assert text.count("\n") == 1


def test_people_get_the_text_and_the_table() -> None:
    lines = shown({}, "Two things.", Grid(("name", "size"), [("a", 1), ("b", None)])).splitlines()

    assert lines[0] == "Two things."
    assert lines[1].split() == ["name", "size"]
    assert [line.split() for line in lines[3:]] == [["a", "1"], ["b", "-"]]


def test_numbers_stand_to_the_right() -> None:
    lines = shown({}, Grid(("size",), [(1,), (1000,)])).splitlines()

    assert lines[2].endswith("   1")
    assert lines[3].endswith("1000")


def test_a_wide_table_in_a_pipe_is_not_cut_off() -> None:
    text = shown({}, Grid(("name", "more"), [("x" * 300, "y" * 300)]))

    assert "x" * 300 in text
    assert "y" * 300 in text


def test_square_brackets_in_a_name_are_not_taken_for_markup() -> None:
    assert "[red]x[/red]" in shown({}, Grid(("name",), [("[red]x[/red]",)]))


def test_a_text_of_several_lines_or_for_the_terminal_keeps_to_its_row_and_branch() -> None:
    text = "first\nsecond\t\x1b[31mred\u2028last, naïve 日本"

    grid = shown({}, Grid(("error",), [(text,), ("next",)])).splitlines()
    tree = list(Branch("root", [Branch(text), Branch("next")]).lines())

    told = "first\\nsecond\\t\\x1b[31mred\\u2028last, naïve 日本"
    assert [line.strip() for line in grid[2:]] == [told, "next"]
    assert tree == ["root", f"├─ {told}", "└─ next"]


class FullDisk(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_results_that_cannot_be_written_are_told_from_a_reader_that_went_away() -> None:
    output = Output(as_json=True, stream=io.BufferedWriter(FullDisk()))

    with pytest.raises(OutputError, match="No space left on device"):
        output.show({"name": "a"})


def test_a_name_that_is_no_text_can_be_printed() -> None:
    assert shown({}, "Deleted topic a\udcff.") == "Deleted topic a\\udcff.\n"

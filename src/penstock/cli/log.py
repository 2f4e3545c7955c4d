"""`penstock log`: look at the files of a node, running or stopped, without changing them.

These commands read the files themselves and speak to no broker. The room of the log is imported
inside them, because no other command needs it and it takes time to load.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exits import FAILED
from penstock.cli.options import Json
from penstock.cli.output import Grid, Output, encode_json

if TYPE_CHECKING:
    from penstock.log import VerifyReport

app = typer.Typer(help="Check and show the files of a node.", no_args_is_help=True)


@app.command()
def verify(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", show_default=False, help="A data directory, or a partition inside it."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Check every stored entry, and exit with 1 when something is damaged."""
    from penstock.log import verify_directory

    report = verify_directory(directory)
    Output(as_json=as_json).show(_as_json(report), _table(report, directory), _verdict(report))
    if report.problems:
        raise typer.Exit(FAILED)


@app.command()
def dump(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", show_default=False, help="A .log, .index, .state or snapshot file."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Show what a file holds, one entry or record per line."""
    from penstock.log import dump_file

    output = Output(as_json=as_json)
    for line in dump_file(file):
        output.write(encode_json(line) + b"\n" if as_json else _readable(line))
    output.flush()


def _table(report: "VerifyReport", directory: Path) -> Grid:
    columns = ("partition", "segments", "entries", "records", "bytes", "offsets", "problems")
    rows = [
        (
            each.directory.relative_to(directory),
            each.segments,
            each.entries,
            each.records,
            each.size_bytes,
            f"{each.first_offset} up to {each.next_offset}",
            len(each.problems),
        )
        for each in report.partitions
    ]
    return Grid(columns, rows)


def _verdict(report: "VerifyReport") -> str:
    found = len(report.problems)
    if found == 0:
        return "Everything that was stored is whole."
    return "\n".join([*report.problems, f"{found} problem{'s' if found > 1 else ''} found."])


def _as_json(report: "VerifyReport") -> dict[str, object]:
    return {
        "problems": len(report.problems),
        "partitions": [
            {
                "directory": str(each.directory),
                "segments": each.segments,
                "entries": each.entries,
                "records": each.records,
                "size_bytes": each.size_bytes,
                "first_offset": each.first_offset,
                "next_offset": each.next_offset,
                "tail_bytes": each.tail_bytes,
                "problems": each.problems,
            }
            for each in report.partitions
        ],
    }


def _readable(line: Mapping[str, object]) -> bytes:
    words = [f"{key}={_word(value)}" for key, value in line.items() if key != "type"]
    return f"{line['type']:<8} {' '.join(words)}\n".encode()


def _word(value: object) -> str:
    """Quote what would not be seen as one word."""
    if value is None:
        return "-"
    text = str(value)
    return text if isinstance(value, str) and text.isalnum() else encode_json(value).decode()

"""Where an archive is, and options of the object store that it is in."""

from typing import Annotated

import typer

from penstock.cli.options import split_pair

ArchivePath = Annotated[
    str | None,
    typer.Option(
        "--archive",
        metavar="PATH",
        show_default="the topic's",
        help="Where the archive is; names a topic that was deleted, too.",
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        show_default=False,
        help="For the archive's object store, such as AWS_REGION=eu-west-1; may be repeated.",
    ),
]


def read_storage_options(pairs: list[str] | None) -> dict[str, str]:
    """Read `NAME=VALUE` pairs."""
    return dict(split_pair(each, option="--storage-option") for each in pairs or [])

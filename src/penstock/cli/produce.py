"""`penstock produce`: publish lines, values or whole files."""

import io
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from penstock.cli.connection import connect
from penstock.cli.options import Bootstrap, Json, TopicName, split_pair
from penstock.cli.output import Grid, Output
from penstock.cli.payloads import Payload, Sources, split_keys, to_bytes, with_key
from penstock.cli.times import read_time_ms

if TYPE_CHECKING:
    from penstock.client import NewMessage, Placement, Producer


class Acks(StrEnum):
    """Who must have stored a message before it counts."""

    NOBODY = "0"
    LEADER = "1"
    ALL = "all"


class Compression(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: TopicName,
    *,
    values: Annotated[
        list[str] | None,
        typer.Option("--value", "-v", show_default=False, help="A message; may be repeated."),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", show_default=False, help="Each line is a message."),
    ] = None,
    value_files: Annotated[
        list[Path] | None,
        typer.Option("--value-file", show_default=False, help="The whole file is one message."),
    ] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="One message without a value, to delete its key.")
    ] = False,
    key: Annotated[
        str | None, typer.Option("--key", "-k", show_default=False, help="Key of every message.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", show_default=False, help="Splits each line into key and value."
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", show_default=False),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, show_default="by key")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", show_default="now", help="ISO 8601, ms or -1h.")
    ] = None,
    compression: Annotated[Compression, typer.Option("--compression", "-z")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option("--acks")] = Acks.ALL,
    bootstrap: Bootstrap = "",
    as_json: Json = False,
) -> None:
    """Publish messages: lines of standard input, or what the options name.

    Prints how many were acknowledged and where they are, also when one of them failed.
    """
    envelope = Envelope(
        topic=topic,
        headers=tuple(split_pair(each, option="--header") for each in headers or []),
        partition=partition,
        timestamp_ms=read_time_ms(timestamp, option="--timestamp"),
    )
    sources = Sources(
        values=values or [],
        line_files=files or [],
        value_files=value_files or [],
        has_tombstone=tombstone,
    )
    payloads = _keyed(sources.payloads(_standard_input()), key=key, separator=key_separator)
    connection = connect(bootstrap)
    from penstock.client import Producer

    tally = Tally()
    try:
        with Producer(
            connection, on_placed=tally.add, acks=acks.value, compression=compression.value
        ) as producer:
            _send_all(producer, envelope.fill(payloads))
    finally:
        _show(tally, topic, Output(as_json=as_json))


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What all messages of one command share."""

    topic: str
    headers: tuple[tuple[str, str], ...]
    partition: int | None
    timestamp_ms: int | None

    def fill(self, payloads: Iterable[Payload]) -> Iterator["NewMessage"]:
        """Make a message of each payload."""
        from penstock.client import Header, NewMessage

        headers = tuple(Header(name, to_bytes(value)) for name, value in self.headers)
        for payload in payloads:
            yield NewMessage(
                topic=self.topic,
                value=payload.value,
                key=payload.key,
                headers=headers,
                partition=self.partition,
                timestamp_ms=self.timestamp_ms,
            )


@dataclass(slots=True)
class Tally:
    """What was acknowledged, by partition."""

    counts: dict[int, int] = field(default_factory=dict)
    firsts: dict[int, int | None] = field(default_factory=dict)
    lasts: dict[int, int | None] = field(default_factory=dict)

    def add(self, placement: "Placement") -> None:
        """Count one message that reached the broker."""
        partition = placement.partition
        self.counts[partition] = self.counts.get(partition, 0) + 1
        self.firsts.setdefault(partition, placement.offset)
        self.lasts[partition] = placement.offset

    @property
    def total(self) -> int:
        """Messages of all partitions."""
        return sum(self.counts.values())

    def rows(self) -> list[tuple[int, int, int | None, int | None]]:
        """Return partition, count, first and last offset, ordered by partition."""
        return [
            (each, self.counts[each], self.firsts[each], self.lasts[each])
            for each in sorted(self.counts)
        ]


def _standard_input() -> BinaryIO:
    # None in a process that was started with a closed one, which reads as an empty one.
    return io.BytesIO() if sys.stdin is None else sys.stdin.buffer


def _keyed(
    payloads: Iterator[Payload], *, key: str | None, separator: str | None
) -> Iterator[Payload]:
    if separator is None:
        return with_key(payloads, None if key is None else to_bytes(key))
    if key is not None:
        raise typer.BadParameter("cannot be used with --key.", param_hint="--key-separator")
    if not separator:
        raise typer.BadParameter("it is empty.", param_hint="--key-separator")
    return split_keys(payloads, to_bytes(separator))


def _send_all(producer: "Producer", messages: Iterable["NewMessage"]) -> None:
    try:
        for message in messages:
            producer.send(message)
    finally:
        # What was handed over counts, also when a later line is wrong or Ctrl-C is pressed.
        producer.flush()


def _show(tally: Tally, topic: str, output: Output) -> None:
    columns = ("partition", "count", "first_offset", "last_offset")
    rows = tally.rows()
    partitions = [dict(zip(columns, row, strict=True)) for row in rows]
    plural = "" if tally.total == 1 else "s"
    parts: list[str | Grid] = [f"Published {tally.total} message{plural} to {topic}."]
    if rows:
        parts.append(Grid(("partition", "count", "first offset", "last offset"), rows))
    output.show({"topic": topic, "count": tally.total, "partitions": partitions}, *parts)

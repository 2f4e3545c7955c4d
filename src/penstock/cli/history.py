"""Reads archive and log as one for `penstock consume --include-deleted` and `--from-snapshot`.

A snapshot is the topic as of a moment: its messages that are dated before it. Of a compacted topic
that is the newest value of each key, without keys that were deleted.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.bounds import grows_in_time, is_within
from penstock.cli.connection import open_admin
from penstock.cli.formats import Writer
from penstock.cli.interruption import Interruption
from penstock.cli.output import Output
from penstock.cli.spark import needing_spark
from penstock.errors import TopicNotFound

if TYPE_CHECKING:
    from penstock.client import Message, TopicSetting

COLUMNS = "key,value,topic,partition,offset,timestamp,headers"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest:
    """What to read of the history of a topic; without a start, all of it."""

    topic: str
    partitions: tuple[int, ...] = ()
    offset: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    snapshot_ms: int | None = None
    count_max: int | None = None
    isolation: str
    archive_path: str | None = None
    storage: dict[str, str]

    def options(self, bootstrap: str, *, is_in_order: bool) -> dict[str, str]:
        """Return this as options of the source; what they let in has yet to be compared.

        A window and a snapshot end at an offset only where times are in order. Else messages of
        the window may follow the first one that is later.
        """
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "columns": COLUMNS,
            "includeDeleted": "true",
            "archiveOptions": json.dumps(self.storage),
            "kafka.isolation.level": self.isolation,
            "startingOffsetsByTimestampStrategy": "latest",
        }
        if self.partitions:
            options["assign"] = json.dumps({self.topic: self.partitions})
        else:
            options["subscribe"] = self.topic
        if self.archive_path is not None:
            options["archivePath"] = self.archive_path
        if self.from_ms is not None:
            options["startingTimestamp"] = str(self.from_ms)
        elif self.offset not in (None, "beginning"):
            options["startingOffsets"] = self._offsets()
        if self._end_ms is not None and is_in_order:
            options["endingTimestamp"] = str(self._end_ms)
        return options

    def admits(self, message: "Message") -> bool:
        """Tell whether a message lies in the window."""
        return is_within(message, from_ms=self.from_ms, to_ms=self._end_ms)

    @property
    def _end_ms(self) -> int | None:
        return self.to_ms if self.snapshot_ms is None else self.snapshot_ms

    def _offsets(self) -> str:
        assert self.offset is not None
        if not self.offset.isdecimal() or not self.partitions:
            raise typer.BadParameter(
                "with --include-deleted it is beginning, or a number together with --partition.",
                param_hint="--offset",
            )
        return json.dumps({self.topic: {str(each): int(self.offset) for each in self.partitions}})


def consume_history(
    request: HistoryRequest, bootstrap: str, writer: Writer, output: Output
) -> None:
    """Write messages out, up to where the topic ends now."""
    with needing_spark():
        from penstock.spark import read_here
    settings = _settings(bootstrap, request.topic)
    options = request.options(bootstrap, is_in_order=grows_in_time(settings))
    messages: Iterator[Message] = filter(request.admits, messages_of(read_here(options)))
    if request.snapshot_ms is not None and _compacts(settings):
        messages = newest_per_key(messages)
    with Interruption() as interruption:
        for message in islice(messages, request.count_max):
            output.write(writer(message))
            if interruption.is_requested:
                break
        output.flush()
    if interruption.is_requested:
        raise KeyboardInterrupt


def newest_per_key(messages: "Iterable[Message]") -> "Iterator[Message]":
    """Yield the last message of each key, unless that is a tombstone; all that have no key."""
    kept: dict[Any, Message] = {}
    for each in messages:
        # A message that was replaced gives its place up.
        name = (each.partition, each.offset) if each.key is None else each.key
        kept.pop(name, None)
        if each.value is not None or each.key is None:
            kept[name] = each
    yield from sorted(kept.values(), key=lambda each: (each.partition, each.offset))


def _settings(bootstrap: str, topic: str) -> "tuple[TopicSetting, ...]":
    try:
        return open_admin(bootstrap).topic(topic).settings
    except TopicNotFound:
        # Only the archive has it, and that does not know.
        return ()


def _compacts(settings: "Iterable[TopicSetting]") -> bool:
    return any(
        each.name == "cleanup.policy" and "compact" in (each.value or "") for each in settings
    )


def messages_of(batches: Iterable[Any]) -> "Iterator[Message]":
    """Yield what record batches of the source hold."""
    from penstock.client import Header, Message

    for batch in batches:
        times_us = batch["timestamp"].cast("int64").to_pylist()
        # Python knows no time after the year 9999, and producers date messages as they like.
        rows = batch.drop_columns(["timestamp"]).to_pylist()
        for row, time_us in zip(rows, times_us, strict=True):
            yield Message(
                topic=row["topic"],
                partition=row["partition"],
                offset=row["offset"],
                timestamp_ms=None if time_us < 0 else time_us // 1000,
                key=row["key"],
                value=row["value"],
                headers=tuple(Header(each["key"], each["value"]) for each in row["headers"] or ()),
            )

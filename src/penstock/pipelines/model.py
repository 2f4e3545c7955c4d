"""What a file of a pipeline says, as values. Paths are absolute and durations are milliseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ValueKind = Literal["json", "text", "bytes"]
TableFormat = Literal["parquet", "delta"]
OutputMode = Literal["append", "update", "complete"]
Guarantee = Literal["exactly_once", "at_least_once"]

RECORD_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_value")
"""Columns of every topic's view beside those of its values: the record that a row came from."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late a row may be by the time in its column."""

    column: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class FunctionName:
    """A function of a module, as `module:function`."""

    module: str
    function: str

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Records of topics, as rows."""

    topics: tuple[str, ...]
    pattern: str | None
    value: ValueKind
    schema: str | None
    start: str
    options: Mapping[str, str]
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """Files as rows: as they are at the start, or each file that comes."""

    format: TableFormat
    path: str
    is_stream: bool
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    """A view by a query over views."""

    sql: str
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameStep:
    """A view by a function that takes data frames and returns one."""

    function: FunctionName
    inputs: tuple[str, ...]
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStep:
    """A view by a function that takes a row and returns one, several or none.

    Where it raises, the row is a dead letter.
    """

    function: FunctionName
    input: str
    schema: str
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """Rows of a view, as records of a topic. Fields other than these are expressions in SQL."""

    view: str
    topic: str
    columns: Mapping[str, str]
    """Expressions for `key`, `value`, `timestamp` and the like; without a value, rows are JSON."""
    headers: Mapping[str, str]
    guarantee: Guarantee
    mode: OutputMode


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """Rows of a view, as files."""

    view: str
    format: TableFormat
    path: str
    partition_by: tuple[str, ...]
    mode: OutputMode


Source = TopicSource | TableSource
Step = SqlStep | FrameStep | RowStep
Sink = TopicSink | TableSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A whole file. `trigger_ms` is None where the pipeline ends with what is there."""

    name: str
    file: Path
    bootstrap: str | None
    url: str | None
    """HTTP addresses of nodes, which sinks that write exactly once ask."""
    checkpoint: str
    trigger_ms: int | None
    dead_letters: str
    spark: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    steps: Mapping[str, Step] = field(default_factory=dict)
    sinks: Mapping[str, Sink] = field(default_factory=dict)

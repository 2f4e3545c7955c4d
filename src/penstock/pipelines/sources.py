"""The sources of a file."""

import datetime as dt
from pathlib import Path
from typing import cast

from penstock.pipelines.ddl import check_ddl
from penstock.pipelines.documents import Section
from penstock.pipelines.model import Source, TableFormat, TableSource, TopicSource, ValueKind
from penstock.pipelines.places import check_topic, located, read_watermark

_TOPIC_KEYS = (
    "topic", "topics", "pattern", "value", "schema", "start", "options", "watermark",
)  # fmt: skip
_TABLE_KEYS = ("parquet", "delta", "stream", "watermark")
_KINDS = ("topic", "topics", "pattern", "parquet", "delta")


def read_source(section: Section, directory: Path) -> Source | None:
    """Return a source; None when it does not say where it reads from, which has been noted."""
    kinds = [kind for kind in _KINDS if kind in section.names]
    if len(kinds) != 1:
        section.expect((*_TOPIC_KEYS, "parquet", "delta", "stream"))
        section.problem(f"it needs one of {', '.join(_KINDS)}, it has {', '.join(kinds) or 'none'}")
        return None
    if kinds[0] in ("parquet", "delta"):
        return _table(section, cast("TableFormat", kinds[0]), directory)
    return _topic(section)


def _topic(section: Section) -> TopicSource:
    section.expect(_TOPIC_KEYS)
    single = section.read("topic", check_topic)
    value = section.choice("value", ("json", "text", "bytes"), "bytes")
    schema = section.read("schema", check_ddl)
    if value == "json" and "schema" not in section.names:
        section.problem("value is json, so a schema is needed, such as: id BIGINT, name STRING")
    if value != "json" and schema is not None:
        section.problem(f"a schema is for value: json, not for {value}", "schema")
    return TopicSource(
        topics=(single,) if single else section.texts("topics"),
        pattern=section.text("pattern"),
        value=cast("ValueKind", value),
        schema=schema,
        start=section.read("start", _check_start) or "earliest",
        options=section.mapping("options"),
        watermark=read_watermark(section),
    )


def _table(section: Section, table_format: TableFormat, directory: Path) -> TableSource:
    section.expect(_TABLE_KEYS)
    is_stream = section.choice("stream", ("true", "false"), "false") == "true"
    if is_stream and table_format == "delta":
        section.problem(
            "a Delta table is read as it is at the start; stream is for Parquet", "stream"
        )
    return TableSource(
        format=table_format,
        path=located(section.required(table_format), directory),
        is_stream=is_stream,
        watermark=read_watermark(section),
    )


def _check_start(text: str) -> str:
    if text not in ("earliest", "latest") and not text.isdecimal():
        try:
            dt.datetime.fromisoformat(text)
        except ValueError:
            raise ValueError("not earliest, latest or a time such as 2025-01-31T12:00Z") from None
    return text

"""The sinks of a file."""

from pathlib import Path
from typing import cast

from penstock.pipelines.documents import Section
from penstock.pipelines.model import (
    Guarantee,
    OutputMode,
    Sink,
    TableFormat,
    TableSink,
    TopicSink,
)
from penstock.pipelines.places import check_topic, check_view, located

RECORD_FIELDS = ("key", "value", "timestamp", "partition", "priority", "deliver_at")
_TOPIC_KEYS = ("from", "topic", *RECORD_FIELDS, "headers", "guarantee", "mode")
_TABLE_KEYS = ("from", "parquet", "delta", "partition_by", "mode")
_KINDS = ("topic", "parquet", "delta")
_MODES = {
    "topic": ("append", "update"),
    "parquet": ("append",),
    "delta": ("append", "complete"),
}


def read_sink(section: Section, directory: Path, *, views: list[str]) -> Sink | None:
    """Return a sink; None when it does not say where it writes to, which has been noted."""
    view = section.required("from")
    check_view(section, "from", view, views)
    kinds = [kind for kind in _KINDS if kind in section.names]
    if len(kinds) != 1:
        section.expect(dict.fromkeys((*_TOPIC_KEYS, *_TABLE_KEYS)))
        section.problem(f"it needs one of {', '.join(_KINDS)}, it has {', '.join(kinds) or 'none'}")
        return None
    if kinds[0] == "topic":
        return _topic(section, view)
    return _table(section, view, cast("TableFormat", kinds[0]), directory)


def _topic(section: Section, view: str) -> TopicSink:
    section.expect(_TOPIC_KEYS)
    fields = {name: section.text(name) for name in RECORD_FIELDS}
    guarantee = section.choice("guarantee", ("exactly_once", "at_least_once"), "exactly_once")
    mode = _mode(section, "topic")
    if mode == "update" and guarantee == "exactly_once":
        section.problem("updates are published at_least_once; say so with guarantee", "mode")
    return TopicSink(
        view=view,
        topic=section.read("topic", check_topic) or "",
        columns={name: text for name, text in fields.items() if text is not None},
        headers=section.mapping("headers"),
        guarantee=cast("Guarantee", guarantee),
        mode=mode,
    )


def _table(section: Section, view: str, table_format: TableFormat, directory: Path) -> TableSink:
    section.expect(_TABLE_KEYS)
    return TableSink(
        view=view,
        format=table_format,
        path=located(section.required(table_format), directory),
        partition_by=section.texts("partition_by"),
        mode=_mode(section, table_format),
    )


def _mode(section: Section, kind: str) -> OutputMode:
    mode = section.choice("mode", ("append", "update", "complete"), "append")
    if mode not in _MODES[kind]:
        section.problem(f"it is {mode!r}; {kind} takes {' or '.join(_MODES[kind])}", "mode")
    return cast("OutputMode", mode)

"""Files of pipelines: all that is wrong is found at once, and what is right is read."""

from pathlib import Path

import pytest

from penstock.errors import InvalidRequest
from penstock.pipelines import (
    FrameStep,
    FunctionName,
    Pipeline,
    TableSink,
    TopicSink,
    TopicSource,
    Watermark,
    load_pipeline,
    read_pipeline,
)

RIGHT = """\
name: totals
bootstrap: localhost:9092
checkpoint: state/totals
trigger: 5 seconds
dead_letters: totals.failed
sources:
  orders:
    topic: orders
    value: json
    schema: id BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP
    watermark: {column: at, delay: 1 minute}
    options: {maxOffsetsPerTrigger: 1000}
steps:
  sums:
    sql: |
      SELECT window(at, '1 minute').start AS minute, sum(amount) AS total
      FROM orders GROUP BY window(at, '1 minute')
  rounded:
    python: rounding:rounded
    inputs: [sums]
sinks:
  topic:
    from: rounded
    topic: totals
    key: minute
    headers: {source: "'totals'"}
  files: {from: orders, parquet: out/orders, partition_by: [id]}
"""
MISTAKES = """\
chekpoint: somewhere
trigger: 5 lightyears
sources:
  orders:
    topic: orders
    value: json
    schema: id DOUBL
    watermark: {column: at, delay: soon}
  other: {topic: a, parquet: b}
steps:
  sums:
    sql: SELECT * FROM orderz JOIN later ON true
  made:
    python: rounding:missing
    inputs: [orders, nothing]
  later:
    rows: no:f
    from: orders
    schema: id INT
sinks:
  out: {from: sum, topic: orders, kee: id, mode: sometimes}
"""
DURATIONS = "not a duration such as 500 ms, 10 seconds, 5m or 1 hour"
TOLD = f"""\
line 1: checkpoint is missing
line 1: chekpoint: unknown key; did you mean checkpoint?
line 2: trigger: it is '5 lightyears', {DURATIONS}
line 7: sources.orders.schema: it is 'id DOUBL', where 'DOUBL' is not a type that Spark knows
line 8: sources.orders.watermark.delay: it is 'soon', {DURATIONS}
line 9: sources.other: it needs one of topic, topics, pattern, parquet, delta, it has topic, parquet
line 12: steps.sums.sql: later is defined below; a step reads those above it
line 12: steps.sums.sql: there is no view orderz; there are orders, other
line 14: steps.made.python: it is 'rounding:missing', but HERE/rounding.py has no function missing
line 15: steps.made.inputs: there is no view nothing; there are orders, other, sums
line 17: steps.later.rows: it is 'no:f', but there is no module no in HERE or on Python's path
line 21: sinks.out.from: there is no view sum; there are orders, other, sums, made, later
line 21: sinks.out.kee: unknown key; did you mean key?
line 21: sinks.out.mode: it is 'sometimes', not append, update or complete
line 21: sinks.out.topic: the pipeline reads orders: it would go round for ever
"""


def written(directory: Path, text: str) -> Path:
    (directory / "rounding.py").write_text("def rounded(frame):\n    return frame\n")
    file = directory / "pipeline.yml"
    file.write_text(text)
    return file


def read(directory: Path, text: str) -> Pipeline:
    return load_pipeline(written(directory, text))


def problems_of(directory: Path, text: str) -> list[str]:
    return [str(each) for each in read_pipeline(written(directory, text))[1]]


def test_a_file_without_mistakes_is_read_into_values(tmp_path: Path) -> None:
    pipeline = read(tmp_path, RIGHT)

    assert (pipeline.name, pipeline.trigger_ms, pipeline.dead_letters) == (
        "totals",
        5000,
        "totals.failed",
    )
    assert pipeline.checkpoint == str(tmp_path / "state/totals")
    orders, rounded = pipeline.sources["orders"], pipeline.steps["rounded"]
    assert isinstance(orders, TopicSource)
    assert orders.watermark == Watermark("at", 60_000)
    assert orders.options == {"maxOffsetsPerTrigger": "1000"}
    assert isinstance(rounded, FrameStep)
    assert rounded.function == FunctionName("rounding", "rounded")
    topic, files = pipeline.sinks["topic"], pipeline.sinks["files"]
    assert isinstance(topic, TopicSink)
    assert (topic.columns, topic.headers) == ({"key": "minute"}, {"source": "'totals'"})
    assert isinstance(files, TableSink)
    assert (files.path, files.partition_by) == (str(tmp_path / "out/orders"), ("id",))


def test_all_mistakes_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, MISTAKES)

    assert [each.replace(str(tmp_path), "HERE") for each in problems] == TOLD.splitlines()


def test_a_file_with_mistakes_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"line 9: sources\.other"):
        read(tmp_path, MISTAKES)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1", "line 1: this is not YAML: expected ',' or ']', but got '<stream end>'"),
        ("- a", "line 1: the file holds no mapping of names to values"),
        (RIGHT.replace("parquet: out/orders", "parquet: [a]"), "it is not a single value"),
        (RIGHT.replace("inputs: [sums]", "inputs: [sums, orders]"), "it would get 2"),
        (RIGHT.replace("value: json", "value: xml"), "it is 'xml', not json, text or bytes"),
        (RIGHT.replace("topic: totals\n", "topic: totals.failed\n"), "where the dead letters go"),
        (RIGHT.replace("name: totals", "name: totals\nname: sums"), "name: it is given twice"),
        (RIGHT.replace("topic: totals\n", "topic: t\n    mode: update\n"), "at_least_once; say so"),
        (RIGHT.replace("sums:", "sum-s:"), "'sum-s' is not a name for a view"),
        (RIGHT.replace("FROM orders", "FROM (orders"), "a bracket is not closed"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, problem: str) -> None:
    assert any(problem in each for each in problems_of(tmp_path, text))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        load_pipeline(tmp_path / "missing.yml")

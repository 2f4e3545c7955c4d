"""Pipelines: values are decoded, rows that fail are told, and queries go on from checkpoints."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.client import Client
from penstock.errors import InvalidRequest
from penstock.pipelines import load_pipeline
from penstock.spark import ClusterAddress, PipelineProgress, check_pipeline, run_pipeline
from tests.kafka_clients import new_topic, publish, read_from, unique
from tests.processes import NodeProcess

HEAD = """\
name: {name}
checkpoint: state
trigger: available-now
"""


def cluster_of(node: NodeProcess) -> ClusterAddress:
    return ClusterAddress(node.bootstrap, node.http_url)


def pipeline_file(directory: Path, text: str) -> Path:
    file = directory / "pipeline.yml"
    file.write_text(HEAD.format(name=unique("pipeline")) + text)
    return file


def test_a_topic_goes_into_files_until_it_is_stopped_and_on_from_the_checkpoint(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    topic = new_topic(node, partitions=2)
    publish(node, topic, [b"a", b"b"])
    (tmp_path / "words.py").write_text(
        "def longer(frame):\n    return frame.selectExpr('concat(value, value) AS word')\n"
    )
    file = pipeline_file(
        tmp_path,
        f"""
sources:
  lines: {{topic: {topic}, value: bytes}}
steps:
  texts: {{sql: "SELECT string(value) AS value, _offset FROM lines"}}
  doubled: {{python: "words:longer", inputs: [texts]}}
sinks:
  files: {{from: doubled, parquet: out}}
  table: {{from: doubled, delta: table}}
""",
    )
    pipeline = load_pipeline(file)

    first = run_pipeline(spark, pipeline, cluster=cluster_of(node))
    publish(node, topic, [b"c"])
    seen: list[PipelineProgress] = []
    second = run_pipeline(
        spark,
        replace(pipeline, trigger_ms=100),
        cluster=cluster_of(node),
        is_stopping=lambda: bool(seen) and seen[-1].rows == 2,
        show=seen.append,
    )

    # Each sink reads for itself.
    assert (first.rows, second.rows, second.lag, second.dead_letters) == (4, 2, 0, 0)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.word for row in rows) == ["aa", "bb", "cc"]
    table = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(table["word"].to_pylist()) == ["aa", "bb", "cc"]


def test_spark_finds_all_that_it_has_against_a_pipeline_without_a_broker(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = pipeline_file(
        tmp_path,
        """
sources:
  orders: {topic: orders, value: json, schema: "id INT, at TIMESTAMP"}
  late: {topic: orders, watermark: {column: nothing, delay: 1s}}
steps:
  wrong: {sql: "SELECT amount FROM orders"}
  odd: {sql: "SELEC id FROM orders"}
sinks:
  files: {from: orders, parquet: out}
  topic: {from: orders, topic: out, key: amount}
""",
    )

    problems = check_pipeline(spark, load_pipeline(file))

    assert list(problems) == ["sources.late", "steps.wrong", "steps.odd", "sinks.topic"]
    assert "`amount`" in problems["steps.wrong"]
    assert "PARSE_SYNTAX_ERROR" in problems["steps.odd"]
    with pytest.raises(InvalidRequest, match=r"steps\.wrong"):
        run_pipeline(spark, load_pipeline(file), cluster=ClusterAddress("localhost:1"))


def test_rows_that_fail_are_dead_letters_and_the_others_arrive(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    source, target, letters = new_topic(node), unique("target"), unique("failed") + ".dlq"
    values = [
        b'{"id": 1, "amount": 2.5}',
        b'{"id": "one", "amount": 2.5}',
        b"{not json",
        b'{"amount": 1.0}',
        b"",
        b'{"id": 2, "amount": -1.0}',
        b'{"id": 3}',
    ]
    publish(node, source, values)
    (tmp_path / "rules.py").write_text(
        "def checked(row):\n"
        "    if row['amount'] is not None and row['amount'] < 0:\n"
        "        raise ValueError(f'amount is {row[\"amount\"]}')\n"
        "    return {**row, 'cents': None if row['amount'] is None else int(row['amount'] * 100)}\n"
    )
    file = pipeline_file(
        tmp_path,
        f"""
dead_letters: {letters}
sources:
  orders: {{topic: {source}, value: json, schema: "id BIGINT NOT NULL, amount DOUBLE"}}
steps:
  checked: {{rows: "rules:checked", from: orders, schema: "id BIGINT, cents BIGINT"}}
sinks:
  topic: {{from: checked, topic: {target}, key: id, headers: {{from: _offset}}}}
""",
    )

    done = run_pipeline(spark, load_pipeline(file), cluster=cluster_of(node))

    assert (done.rows, done.dead_letters, done.lag) == (7, 5, 0)
    records = read_from(node, target, 2)
    assert [(each.key(), json.loads(each.value()), each.headers()) for each in records] == [
        (b"1", {"id": 1, "cents": 250}, [("from", b"0")]),
        (b"3", {"id": 3}, [("from", b"6")]),
    ]
    with Client(node.http_url) as client:
        found = client.dead_letters.search(letters)
    assert {(each.source_offset, each.value, each.error) for each in found} == {
        (1, values[1], "id is one, not bigint"),
        (2, values[2], "the value is not JSON of the schema: {not json"),
        (3, values[3], "id is missing"),
        (4, values[4], "the value is empty, not JSON"),
        (5, values[5], "ValueError: amount is -1.0"),
    }
    assert {each.source_topic for each in found} == {source}


def test_results_that_change_are_published_again_in_update_mode(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    source, target = new_topic(node), unique("target")
    file = pipeline_file(
        tmp_path,
        f"""
sources:
  words: {{topic: {source}, value: text}}
steps:
  counts: {{sql: "SELECT value AS word, count(*) AS times FROM words GROUP BY value"}}
sinks:
  topic: {{from: counts, topic: {target}, key: word, value: times, mode: update,
          guarantee: at_least_once}}
""",
    )
    publish(node, source, [b"a", b"b", b"a"])
    run_pipeline(spark, load_pipeline(file), cluster=cluster_of(node))
    publish(node, source, [b"a"])

    run_pipeline(spark, load_pipeline(file), cluster=cluster_of(node))

    found = [(each.key(), each.value()) for each in read_from(node, target, 3)]
    assert sorted(found[:2]) == [(b"a", b"2"), (b"b", b"1")]
    assert found[2] == (b"a", b"3")

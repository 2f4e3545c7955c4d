"""Pipelines: values are decoded, rows that fail are told, and queries go on from checkpoints."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import InvalidRequest
from penstock.pipelines import load_pipeline
from penstock.spark import ClusterAddress, check_pipeline, run_pipeline
from tests.kafka_clients import new_topic, publish, unique
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


def test_a_topic_goes_into_files_and_on_from_the_checkpoint(
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
""",
    )
    pipeline = load_pipeline(file)

    first = run_pipeline(spark, pipeline, cluster=cluster_of(node))
    publish(node, topic, [b"c"])
    second = run_pipeline(spark, pipeline, cluster=cluster_of(node))

    assert (first.rows, second.rows, second.lag, second.dead_letters) == (2, 1, 0, 0)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.word for row in rows) == ["aa", "bb", "cc"]


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

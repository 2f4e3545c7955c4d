"""The Spark programs in examples/ do what they say."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.kafka_clients import DEADLINE_S, new_producer, new_topic, publish
from tests.processes import NodeProcess
from tests.spark.spark_daemons import ENVIRON

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.usefixtures("java")
def test_a_topic_is_asked_in_sql(node: NodeProcess) -> None:
    topic = new_topic(node)
    producer = new_producer(node)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3")):
        producer.produce(topic, value, key)
    assert producer.flush(DEADLINE_S) == 0

    command = [sys.executable, str(EXAMPLES / "spark_views.py"), topic, node.bootstrap]
    done = subprocess.run(command, env=ENVIRON, capture_output=True, text=True, timeout=800)

    lines = done.stdout.splitlines()
    assert lines == ["partition 0: 3 records, 0 to 2", "a: 3", "b: 2"], done.stderr[-3000:]


@pytest.mark.usefixtures("java")
def test_a_declarative_pipeline_makes_tables_of_a_topic(node: NodeProcess, tmp_path: Path) -> None:
    topic = new_topic(node)
    orders = [{"number": number, "customer": f"customer-{number % 3}"} for number in range(10)]
    publish(node, topic, [json.dumps(order).encode() for order in orders])
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES / "spark_pipeline", project)
    specification = project / "spark-pipeline.yml"
    text = specification.read_text().replace(
        "storage: storage", f"storage: file://{project}/storage"
    )
    specification.write_text(text)

    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "spark-pipelines"), "run", "--remote", "local[2]",
            "--conf", "spark.sql.catalogImplementation=hive",
            "--conf", f"spark.sql.warehouse.dir={project}/warehouse",
            "--conf", f"spark.orders.bootstrap={node.bootstrap}",
            "--conf", f"spark.orders.topic={topic}",
        ],
        cwd=project, env=ENVIRON,
        capture_output=True, text=True, timeout=800,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    counts = pq.read_table(project / "warehouse" / "orders_per_customer").to_pylist()
    assert {row["customer"]: row["count"] for row in counts} == {
        "customer-0": 4,
        "customer-1": 3,
        "customer-2": 3,
    }

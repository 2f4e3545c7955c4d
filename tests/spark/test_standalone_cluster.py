"""Programs and jobs on a Spark cluster of one master and two workers.

Executors are processes of their own, in other directories than the driver, and have of it only what
Spark sends them.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock.client import Client
from tests.kafka_clients import new_topic, publish, read_from, unique, wait_until
from tests.processes import NodeProcess, free_ports
from tests.spark.commands import consumed, run_python
from tests.spark.keyed_numbers import check_each_once, held, publish_numbers
from tests.spark.services import ends_of
from tests.spark.spark_daemons import ENVIRON, started

# What an administrator of a cluster gives to all drivers.
DEFAULTS = """\
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.cores.max 2
spark.executor.cores 1
spark.executor.memory 512m
spark.sql.shuffle.partitions 2
"""
JOB = """
import sys
from penstock.spark import open_session

master, bootstrap, url, topic, target = sys.argv[1:]
spark = open_session("cluster", master=master)
reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
records = reader.option("subscribe", topic).option("minPartitions", "4").load()
total = records.selectExpr("sum(int(string(value)))").first()[0]
writer = records.select("value").write.format("penstock").mode("append").option("topic", target)
writer.option("kafka.bootstrap.servers", bootstrap).option("url", url).save()
# The driver counts itself.
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print("total", total, "executors", executors)
spark.stop()
"""
PIPELINE = """\
name: {name}
checkpoint: state
sources:
  orders: {{topic: {source}, value: json, schema: "id BIGINT NOT NULL, amount DOUBLE"}}
steps:
  checked: {{rows: "rules:checked", from: orders, schema: "id BIGINT, cents BIGINT"}}
  even: {{sql: "SELECT * FROM checked WHERE id % 2 = 0"}}
sinks:
  topic: {{from: even, topic: {target}, key: id, value: cents}}
  table: {{from: checked, delta: table}}
"""
RULES = """\
def checked(row):
    if row["amount"] < 0:
        raise ValueError(f"amount is {row['amount']}")
    return {"id": row["id"], "cents": int(row["amount"] * 100)}
"""

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that looks for old segments all the time."""
    directory = tmp_path_factory.mktemp("node")
    with NodeProcess(directory, "--housekeeping-interval-ms", "200") as running:
        yield running


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where workers have a directory for each of their executors."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def master(java: None, work: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster that was started from the package that pip installs."""
    logs = tmp_path_factory.mktemp("cluster")
    (port,) = free_ports(1)
    address = f"spark://127.0.0.1:{port}"
    local = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as running:
        running.enter_context(
            started(
                logs / "master.log", "I have been elected leader",
                "org.apache.spark.deploy.master.Master", *local, "--port", str(port),
            )
        )  # fmt: skip
        for number in (1, 2):
            running.enter_context(
                started(
                    logs / f"worker-{number}.log", "Successfully registered with master",
                    "org.apache.spark.deploy.worker.Worker", *local, "--cores", "1",
                    "--memory", "600m", "--work-dir", str(work / str(number)), address,
                )
            )  # fmt: skip
        yield address


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of drivers, which says where settings of Spark are."""
    directory = tmp_path_factory.mktemp("conf")
    (directory / "spark-defaults.conf").write_text(DEFAULTS)
    return {**ENVIRON, "SPARK_CONF_DIR": str(directory)}


@pytest.fixture
def penstock(
    node: NodeProcess, master: str, work: Path, environ: dict[str, str], tmp_path: Path
) -> Command:
    """Run a command on the cluster, as a user in `tmp_path` would; return what it told."""

    def run(*arguments: str) -> Any:
        before = set(work.glob("*/app-*"))
        where = ("--master", master, "--bootstrap", node.bootstrap, "--json")
        command = ("-m", "penstock.cli", *arguments, *where)
        told = run_python(*command, environ=environ, directory=tmp_path)
        assert set(work.glob("*/app-*")) > before, "executors of the cluster did the work"
        return json.loads(told)

    return run


def test_executors_of_a_standalone_cluster_read_and_write_topics(
    node: NodeProcess, master: str, environ: dict[str, str]
) -> None:
    topic, target = new_topic(node, partitions=2), new_topic(node)
    for partition in (0, 1):
        publish(node, topic, [b"%d" % number for number in range(100)], partition=partition)

    places = (node.bootstrap, node.http_url, topic, target)
    told = run_python("-c", JOB, master, *places, environ=environ)

    assert told.strip() == f"total {2 * sum(range(100))} executors 2"
    written = sorted(int(message.value() or b"") for message in read_from(node, target, 200))
    assert written == sorted(2 * list(range(100)))


def test_a_topic_is_archived_and_published_again_with_what_retention_removed(
    node: NodeProcess, penstock: Command, tmp_path: Path
) -> None:
    topic = new_topic(node, partitions=2, segment_bytes="1024", retention_bytes="1")
    target = new_topic(node, partitions=2)
    url = ("--url", node.http_url)
    enable = ("archive", "enable", topic, "--to", "archive", *url)
    run_python("-m", "penstock.cli", *enable, directory=tmp_path)
    publish_numbers(node, topic, range(200))
    whole = ("--from-beginning", "--exit-at-end")
    first = consumed(node, topic, *whole)

    (archived,) = penstock("archive", "run", topic, "--once", *url)
    publish_numbers(node, topic, range(200, 240))
    with Client(node.http_url) as client:
        wait_until(
            lambda: all(each.start > 0 for each in client.topic(topic).partitions),
            "archived segments go",
        )
    # Where the executors are, the path that the driver was given leads nowhere.
    replayed = penstock("replay", topic, "--into", target, "--archive", "archive", *url)

    rest = consumed(node, topic, *whole)
    assert archived["records"] == 200
    assert replayed["messages"] == 240
    assert len(rest) < 240
    check_each_once(held(node, target, 2), range(240))
    contents = ("key", "value", "headers", "timestamp_ms")
    published = {each["value"]: [each[name] for name in contents] for each in [*first, *rest]}
    found = consumed(node, target, *whole)
    assert {each["value"]: [each[name] for name in contents] for each in found} == published


def test_a_pipeline_writes_topics_and_tables_and_rows_that_fail_are_dead_letters(
    node: NodeProcess, penstock: Command, tmp_path: Path
) -> None:
    source, target, name = new_topic(node, partitions=2), new_topic(node), unique("pipeline")
    orders = [b'{"id": %d, "amount": %d.5}' % (number, number) for number in range(10)]
    publish(node, source, [*orders[:5]], partition=0)
    publish(node, source, [*orders[5:], b'{"id": 10, "amount": -1.0}'], partition=1)
    (tmp_path / "rules.py").write_text(RULES)
    file = tmp_path / "pipeline.yml"
    file.write_text(PIPELINE.format(name=name, source=source, target=target))

    done = penstock("pipeline", "run", "pipeline.yml", "--once", "--url", node.http_url)

    assert (done["lag"], done["dead_letters"]) == (0, 1)
    expected = [(number, number * 100 + 50) for number in range(10)]
    written = [(each.key(), each.value()) for each in read_from(node, target, 5)]
    assert sorted(written) == [(b"%d" % key, b"%d" % cents) for key, cents in expected[::2]]
    assert ends_of(node, target) == 5
    rows = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["cents"]) for row in rows) == expected
    with Client(node.http_url) as client:
        (letter,) = client.dead_letters.search(f"{name}.dlq")
    assert (letter.source_topic, letter.source_partition, letter.source_offset) == (source, 1, 5)
    assert letter.error == "ValueError: amount is -1.0"


def test_a_topic_is_resharded_and_counted(
    node: NodeProcess, penstock: Command, tmp_path: Path
) -> None:
    topic = new_topic(node, partitions=2)
    publish_numbers(node, topic, range(100))

    reshard = ("reshard", topic, "--partitions", "3", "--checkpoint", "state")
    resharded = penstock(*reshard, "--url", node.http_url)
    traffic = penstock("insight", "traffic", topic)

    assert resharded["is_switched"]
    assert resharded["verdict"] == {"records": 100, "missing": 0, "extra": 0, "out_of_order": 0}
    found = held(node, topic, 3)
    check_each_once(found, range(100))
    counted = {each["partition"]: each["records"] for each in traffic["tables"]["partitions"]}
    assert counted == {partition: len(records) for partition, records in found.items()}

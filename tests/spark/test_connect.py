"""Jobs on a Spark Connect server: clients without Java, and everything of Spark on the server."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.client import Client
from penstock.spark import ArchiveLocation, ArchiveTable
from tests.kafka_clients import new_topic, publish, read_from, unique
from tests.processes import NodeProcess, free_ports
from tests.spark.services import Service, ends_of, wait_for
from tests.spark.spark_daemons import ENVIRON, started

CLIENT_DEADLINE_S = 480
# A client that started Java would not find it.
CLIENT_ENVIRON = {**ENVIRON, "PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
PROGRAM = """
import sys
from penstock.spark import open_session

remote, bootstrap, url, topic, target, checkpoint = sys.argv[1:]
spark = open_session("program", remote=remote)
address = {"kafka.bootstrap.servers": bootstrap}
records = spark.read.format("penstock").options(**address).option("subscribe", topic).load()
print(records.selectExpr("sum(int(string(value)))").first()[0])
stream = spark.readStream.format("penstock").options(**address).option("subscribe", topic)
stream = stream.option("startingOffsets", "earliest").load().select("key", "value")
writer = stream.writeStream.format("penstock").options(**address).option("url", url)
writer = writer.option("topic", target).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""
PIPELINE = """\
name: {name}
checkpoint: state
trigger: 100 milliseconds
sources:
  lines: {{topic: {topic}, value: json, schema: "number INT", start: earliest}}
steps:
  doubled: {{python: "rules:double", inputs: [lines]}}
  checked: {{rows: "rules:check", from: doubled, schema: "number INT"}}
sinks:
  topic: {{from: checked, topic: {target}}}
  files: {{from: checked, parquet: files}}
  table: {{from: checked, delta: table}}
"""
RULES = """
def double(frame):
    return frame.selectExpr("number * 2 AS number", "* EXCEPT (number)")

def check(row):
    if row["number"] == 6:
        raise ValueError("six")
    return row
"""


@pytest.fixture(scope="module")
def remote(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that was started from the package that pip installs."""
    directory = tmp_path_factory.mktemp("connect")
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.python.daemon.module": "penstock.spark.daemon",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    with started(
        directory / "server.log", "Spark Connect server started",
        "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *confs,
        "spark-internal",
    ):  # fmt: skip
        yield f"sc://127.0.0.1:{port}"


def run(*command: str) -> str:
    """Run a client to its end; return what it printed."""
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True,
        timeout=CLIENT_DEADLINE_S, env=CLIENT_ENVIRON,
    )  # fmt: skip
    skip_when_too_busy(done.stderr)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def skip_when_too_busy(told: str) -> None:
    """Spark's server gives a process of `foreachBatch` ten seconds to start, and no more."""
    if "penstock:" in told and "Python worker failed to connect back" in told:
        pytest.skip("the machine is too busy: a Python process took more than ten seconds to start")


def penstock(*arguments: str) -> str:
    return run("-m", "penstock.cli", *arguments)


def address_of(node: NodeProcess) -> tuple[str, ...]:
    return ("--bootstrap", node.bootstrap, "--url", node.http_url)


def test_a_program_reads_and_writes_topics(node: NodeProcess, remote: str, tmp_path: Path) -> None:
    topic, target = new_topic(node, partitions=2), new_topic(node)
    publish(node, topic, [b"%d" % number for number in range(50)])
    places = (node.bootstrap, node.http_url, topic, target, str(tmp_path))

    assert run("-c", PROGRAM, remote, *places).strip() == str(sum(range(50)))
    # The stream goes on from its checkpoint, on the server, and finds nothing new.
    run("-c", PROGRAM, remote, *places)

    written = sorted(int(message.value() or b"") for message in read_from(node, target, 50))
    assert written == list(range(50))
    assert ends_of(node, target) == 50


def test_a_pipeline_runs_ends_by_a_signal_and_goes_on(
    node: NodeProcess, remote: str, tmp_path: Path
) -> None:
    topic, target, name = new_topic(node), new_topic(node), unique("pipeline")
    publish(node, topic, [b'{"number": %d}' % number for number in range(5)])
    file = tmp_path / "pipeline.yml"
    file.write_text(PIPELINE.format(name=name, topic=topic, target=target))
    (tmp_path / "rules.py").write_text(RULES)
    command = ("pipeline", "run", str(file), "--remote", remote, *address_of(node))

    service = Service(tmp_path / "pipeline.log", *command, environ=CLIENT_ENVIRON)
    wait_for(lambda: not service.is_running or (tmp_path / "table").exists(), "the table is there")
    skip_when_too_busy(service.told())
    service.signal(signal.SIGTERM)
    assert service.has_ended_well(), service.told()
    publish(node, topic, [b'{"number": 5}'])
    penstock(*command, "--once")

    wanted = [0, 2, 4, 8, 10]
    messages = read_from(node, target, 5)
    assert sorted(json.loads(each.value() or b"")["number"] for each in messages) == wanted
    assert ends_of(node, target) == 5
    table = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(table["number"].to_pylist()) == wanted
    assert ends_of(node, f"{name}.dlq") == 1


def test_a_topic_is_archived_and_counted(node: NodeProcess, remote: str, tmp_path: Path) -> None:
    topic = new_topic(node, partitions=2)
    publish(node, topic, [b"%d" % number for number in range(100)])
    ArchiveTable.create(ArchiveLocation(str(tmp_path / "archive")))
    with Client(node.http_url) as client:
        client.alter_topic(topic, settings={"archive.path": str(tmp_path / "archive")})
        (message, *_) = client.receive(topic, "group", wait_s=10)
        client.ack(message)

    archive = ("archive", "run", topic, "--once", "--remote", remote, *address_of(node), "--json")
    (state,) = json.loads(penstock(*archive))
    insight = ("--remote", remote, "--bootstrap", node.bootstrap, "--json")
    traffic = json.loads(penstock("insight", "traffic", topic, *insight))
    latency = json.loads(penstock("insight", "latency", topic, *insight, "--url", node.http_url))

    assert (state["records"], sum(each["lag"] for each in state["partitions"])) == (100, 0)
    assert sum(each["records"] for each in traffic["tables"]["partitions"]) == 100
    assert [each["acks"] for each in latency["tables"]["groups"]] == [1]


def test_a_server_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = ["-m", "penstock.cli", "insight", "traffic", "any", "--remote"]

    nobody, nonsense = (
        subprocess.run(
            [sys.executable, *command, address], capture_output=True, text=True, timeout=120
        )
        for address in (f"sc://127.0.0.1:{port}", "spark://host:7077")
    )

    assert (nobody.returncode, nonsense.returncode) == (3, 1)
    assert f"no Spark Connect server answers at 127.0.0.1:{port}" in nobody.stderr
    assert "is not the address of a Connect server: sc://HOST:PORT" in nonsense.stderr

"""Jobs on a Spark Connect server: clients without Java, and everything of Spark on the server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka_clients import new_topic, publish, read_from
from tests.processes import NodeProcess, free_ports
from tests.spark.commands import run_python
from tests.spark.services import ends_of
from tests.spark.spark_daemons import ENVIRON, started

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
    return run_python(*command, environ=CLIENT_ENVIRON)


def penstock(*arguments: str) -> str:
    return run("-m", "penstock.cli", *arguments)


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


def test_a_topic_is_counted(node: NodeProcess, remote: str) -> None:
    topic = new_topic(node, partitions=2)
    publish(node, topic, [b"%d" % number for number in range(100)])

    insight = ("--remote", remote, "--bootstrap", node.bootstrap, "--json")
    traffic = json.loads(penstock("insight", "traffic", topic, *insight))

    assert sum(each["records"] for each in traffic["tables"]["partitions"]) == 100


def test_a_topic_is_resharded_and_published_again(
    node: NodeProcess, remote: str, tmp_path: Path
) -> None:
    topic, target = new_topic(node, partitions=2), new_topic(node)
    publish(node, topic, [b"%d" % number for number in range(50)])
    where = ("--remote", remote, "--bootstrap", node.bootstrap, "--url", node.http_url, "--json")

    resharding = ("reshard", topic, "--partitions", "3", "--checkpoint", str(tmp_path))
    resharded = json.loads(penstock(*resharding, *where))
    replayed = json.loads(penstock("replay", topic, "--into", target, *where))

    assert (resharded["is_switched"], resharded["verdict"]["records"]) == (True, 50)
    assert replayed["messages"] == 50
    written = sorted(int(message.value() or b"") for message in read_from(node, target, 50))
    assert written == list(range(50))


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

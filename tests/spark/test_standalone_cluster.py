"""A Spark cluster of one master and two workers reads a topic and writes another one."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kafka_clients import new_topic, publish, read_from
from tests.processes import NodeProcess, free_ports
from tests.spark.spark_daemons import ENVIRON, started

JOB = """
import sys
from penstock.spark import open_session

master, bootstrap, url, topic, target = sys.argv[1:]
spark = open_session("cluster", master=master, settings={
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.cores.max": "2", "spark.executor.cores": "1", "spark.executor.memory": "512m",
})
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


@pytest.mark.usefixtures("java")
def test_executors_of_a_standalone_cluster_read_and_write_topics(
    node: NodeProcess, tmp_path: Path
) -> None:
    topic, target = new_topic(node, partitions=2), new_topic(node)
    for partition in (0, 1):
        publish(node, topic, [b"%d" % number for number in range(100)], partition=partition)
    (port,) = free_ports(1)
    master = f"spark://127.0.0.1:{port}"
    local = ("--host", "127.0.0.1", "--webui-port", "0")

    with ExitStack() as running:
        running.enter_context(
            started(
                tmp_path / "master.log", "I have been elected leader",
                "org.apache.spark.deploy.master.Master", *local, "--port", str(port),
            )
        )  # fmt: skip
        for number in (1, 2):
            running.enter_context(
                started(
                    tmp_path / f"worker-{number}.log", "Successfully registered with master",
                    "org.apache.spark.deploy.worker.Worker", *local, "--cores", "1",
                    "--memory", "600m", "--work-dir", str(tmp_path / f"work-{number}"), master,
                )
            )  # fmt: skip
        job = subprocess.run(
            [sys.executable, "-c", JOB, master, node.bootstrap, node.http_url, topic, target],
            capture_output=True, text=True, timeout=800, env=ENVIRON,
        )  # fmt: skip

    assert job.stdout.strip() == f"total {2 * sum(range(100))} executors 2", job.stderr[-3000:]
    written = sorted(int(message.value() or b"") for message in read_from(node, target, 200))
    assert written == sorted(2 * list(range(100)))

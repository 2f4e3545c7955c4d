"""Stopping, starting again, and what a node says when it cannot start."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from tests.integration.clients import (
    WAIT_S,
    add_partitions,
    alter_topic,
    consumer,
    create_topic,
    delete_topic,
    logged,
    producer,
    publish,
    read_values,
    topic_settings,
    topics,
    wait_until,
    watermarks,
)
from tests.integration.conftest import StartNode
from tests.processes import NodeProcess

# The exit code that tells a script that the command line or the configuration is at fault.
USAGE = 2


def serve(*flags: str) -> subprocess.CompletedProcess[str]:
    """Run `penstock serve` to its end, which comes at once when it cannot start."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PENSTOCK_")}
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", "serve", *flags],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=environ,
    )


def test_a_node_that_logs_for_programs_prints_nothing_else(start_node: StartNode) -> None:
    node = start_node()
    node.stop()

    lines = node.log_path.read_text().splitlines()
    assert [json.loads(line)["message"] for line in lines][-1] == "node has stopped"


@pytest.mark.crash
def test_topics_and_their_settings_survive_a_kill(start_node: StartNode) -> None:
    node = start_node("--auto-create-topics", "false")
    create_topic(node, "orders", 2, retention_ms="3600000", segment_bytes="4096")
    create_topic(node, "again")
    create_topic(node, "gone")
    publish(node, "orders", [b"first"])
    publish(node, "again", [b"old"] * 3)
    add_partitions(node, "orders", 4)
    publish(node, "orders", [b"third"], partition=3)
    alter_topic(node, "orders", max_message_bytes="2000000")
    delete_topic(node, "gone")
    delete_topic(node, "again")
    create_topic(node, "again", 2)
    before = topic_settings(node, "orders")
    node.kill()
    node.start()

    assert topics(node) == {"orders": 4, "again": 2}
    assert topic_settings(node, "orders") == before
    assert before["retention.ms"] == "3600000"
    assert before["max.message.bytes"] == "2000000"
    assert read_values(node, "orders") == [b"first"]
    assert read_values(node, "orders", 3) == [b"third"]
    assert watermarks(node, "again") == (0, 0)
    assert publish(node, "again", [b"new"]) == [0]
    assert read_values(node, "again") == [b"new"]


def test_a_stopping_node_answers_what_is_in_flight_and_the_next_start_has_nothing_to_recover(
    start_node: StartNode,
) -> None:
    node = start_node()
    create_topic(node, "orders")
    acknowledged: list[int] = []
    refused: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(message.offset() or 0)
        else:
            refused.append(error)

    # One that is not answered is not sent again, so each one tells what became of it.
    sender = producer(node, **{"retries": 0, "linger.ms": 0, "message.timeout.ms": 120_000})
    stop = threading.Event()

    def publish_on() -> None:
        number = 0
        while not stop.is_set():
            if len(sender) < 200:
                sender.produce("orders", b"%d" % number, partition=0, on_delivery=note)
                number += 1
            sender.poll(0.001)

    publishing = threading.Thread(target=publish_on)
    publishing.start()
    wait_until(lambda: len(acknowledged) > 500, "messages are acknowledged")
    exit_code = node.stop()
    stop.set()
    publishing.join()
    sender.purge()
    sender.flush(WAIT_S)

    assert exit_code == 0
    assert logged(node, "node has stopped")
    begin = node.log_path.stat().st_size
    node.start()
    started = node.log_lines(begin)
    assert [line for line in started if line["level"] != "info"] == []
    assert sorted(acknowledged) == acknowledged
    # Every stored message was acknowledged: none was left without its answer.
    assert watermarks(node, "orders")[1] == len(acknowledged)


def test_a_stop_is_clean_with_readers_that_wait_and_connections_that_idle(
    start_node: StartNode,
) -> None:
    node = start_node()
    create_topic(node, "orders")
    reader = consumer(node, **{"fetch.wait.max.ms": 30_000, "socket.timeout.ms": 60_000})
    reader.assign([TopicPartition("orders", 0, 0)])
    assert reader.poll(0.2) is None
    with socket.create_connection(("127.0.0.1", node.kafka_port)):
        assert node.stop() == 0
    reader.close()


def test_consumers_of_queues_that_wait_are_answered_when_the_node_stops(
    start_node: StartNode,
) -> None:
    node = start_node()
    create_topic(node, "orders")
    group = f"{node.http_url}/v1/topics/orders/groups/g"
    answers: list[int] = []

    def receive() -> None:
        answer = httpx.post(f"{group}/receive", json={"wait": "60s"}, timeout=WAIT_S)
        answers.append(answer.status_code)

    with httpx.stream("GET", f"{group}/stream", timeout=WAIT_S) as stream:
        waiting = threading.Thread(target=receive)
        waiting.start()
        metrics = f"{node.http_url}/metrics"
        wait_until(lambda: 'operation="receive"' in httpx.get(metrics).text, "a receive waits")
        assert node.stop() == 0
        waiting.join(WAIT_S)
        pushed = stream.read()

    assert answers == [503]
    assert pushed == b""
    assert [line for line in node.log_lines() if line["level"] != "info"] == []


def test_a_data_directory_in_use_is_refused_by_name(start_node: StartNode) -> None:
    node = start_node()

    second = serve(
        "--data-dir", str(node.data_dir), "--kafka-port", "0", "--http-port", "0"
    )  # fmt: skip

    assert second.returncode == 1
    assert (
        f"{node.data_dir} is in use by another penstock process (pid {node.pid})" in second.stderr
    )
    assert "Traceback" not in second.stderr
    assert node.get("/health")[0] == 200


@pytest.mark.parametrize("option", ["kafka_port", "http_port"])
def test_a_port_in_use_is_refused_by_name(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"kafka_port": 0, "http_port": 0, option: port}
        result = serve(
            "--data-dir", str(tmp_path),
            "--kafka-port", str(ports["kafka_port"]),
            "--http-port", str(ports["http_port"]),
            "--peer-port", "0",
        )  # fmt: skip

    assert result.returncode == USAGE
    assert f"{option}: 127.0.0.1:{port} cannot be used: another process listens" in result.stderr
    assert "Traceback" not in result.stderr


def test_all_mistakes_of_the_configuration_are_reported_at_once(tmp_path: Path) -> None:
    result = serve(
        "--data-dir", str(tmp_path / "data"),
        "--kafka-port", "70000",
        "--segment-bytes", "many",
        "--retention-ms", "-5",
        "--log-level", "loud",
    )  # fmt: skip

    assert result.returncode == USAGE
    for name in ("kafka-port", "segment-bytes", "retention-ms", "log-level"):
        assert name in result.stderr.replace("_", "-"), result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_data_directory_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    result = serve("--data-dir", str(tmp_path / "file"), "--kafka-port", "0", "--http-port", "0")

    assert result.returncode == USAGE
    assert str(tmp_path / "file") in result.stderr
    assert "Traceback" not in result.stderr


def test_a_node_that_is_told_to_stop_while_it_starts_stops(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "penstock.cli", "serve", "--data-dir", str(node.data_dir),
            "--kafka-port", "0", "--http-port", "0", "--peer-port", "0",
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until((node.data_dir / "LOCK").exists, "the node starts")

    process.send_signal(signal.SIGTERM)

    _, output = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, output.decode()
    assert b"Traceback" not in output


@pytest.mark.crash
def test_committed_offsets_and_groups_survive_a_kill(start_node: StartNode) -> None:
    node = start_node()
    create_topic(node, "orders", 2)
    for number in range(2):
        publish(node, "orders", [b"%d" % each for each in range(10)], partition=number)
    committed = [TopicPartition("orders", 0, 4), TopicPartition("orders", 1, 7, "noted")]
    reader = consumer(node, "billing")
    reader.commit(offsets=committed, asynchronous=False)
    reader.close()
    node.kill()
    node.start()

    reader = consumer(node, "billing")
    asked = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    found = reader.committed(asked, timeout=WAIT_S)
    assert [each.offset for each in found] == [4, 7]
    assert found[1].metadata == "noted"
    reader.subscribe(["orders"])
    messages = []
    wait_until(
        lambda: messages.extend(reader.consume(100, timeout=0.2)) or len(messages) >= 9,
        "the group goes on where it was",
    )
    reader.close()
    assert sorted((each.partition(), each.offset()) for each in messages) == [
        *((0, offset) for offset in range(4, 10)),
        *((1, offset) for offset in range(7, 10)),
    ]

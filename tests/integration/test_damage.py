"""Files that were cut, filled with garbage or changed while nobody looked."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.integration.clients import (
    WAIT_S,
    consumer,
    create_topic,
    logged,
    metrics,
    publish,
    publish_batches,
    read,
    read_values,
    verify,
    wait_until,
    watermarks,
)
from tests.integration.conftest import StartNode
from tests.processes import NodeProcess

pytestmark = pytest.mark.crash


def log_file(node: NodeProcess, topic: str, partition: int = 0) -> Path:
    return node.data_dir / "topics" / topic / str(partition) / f"{1:020}.log"


def batch_positions(data: bytes) -> list[int]:
    """Return where each batch of a .log file begins, and where the last one ends."""
    positions = [0]
    while positions[-1] < len(data):
        size = 12 + int.from_bytes(data[positions[-1] + 8 : positions[-1] + 12], "big")
        positions.append(positions[-1] + size)
    return positions


def test_a_torn_tail_is_cut_and_what_was_acknowledged_is_kept(start_node: StartNode) -> None:
    node = start_node()
    tails = {
        "garbage": bytes(range(256)) * 5,
        "zeros": bytes(4096),
        "short": b"\x00" * 7,
    }
    for topic in (*tails, "torn"):
        create_topic(node, topic)
        publish_batches(node, topic, [b"one", b"two", b"three"])
    node.kill()
    for topic, tail in tails.items():
        with log_file(node, topic).open("ab") as file:
            file.write(tail)
    # A batch that the next one would have been, but for its last byte.
    whole = log_file(node, "torn").read_bytes()
    first, second = batch_positions(whole)[:2]
    following = bytearray(whole[first:second])
    following[:8] = (3).to_bytes(8, "big")
    with log_file(node, "torn").open("ab") as file:
        file.write(following[:-1])
    begin = node.log_path.stat().st_size
    node.start()

    cut = {str(line["log"]).rsplit("-", 1)[0] for line in logged(node, "torn tail cut", begin)}
    # Zeros are what a node writes ahead of its entries, and no trace of a write that was torn.
    assert cut == {"garbage", "torn"}
    assert node.get("/ready")[0] == 200
    for topic in (*tails, "torn"):
        assert read_values(node, topic) == [b"one", b"two", b"three"]
        assert publish(node, topic, [b"four"]) == [3]
    node.kill()
    assert verify(node).returncode == 0


def test_acknowledged_records_that_are_missing_close_their_partition_and_no_other(
    start_node: StartNode,
) -> None:
    node = start_node()
    create_topic(node, "orders", 2)
    for partition in range(2):
        for number in range(5):
            publish(node, "orders", [b"%d" % number], partition=partition)
    node.kill()
    path = log_file(node, "orders", 1)
    data = path.read_bytes()
    cut_at = batch_positions(data)[2] + 10
    path.write_bytes(data[:cut_at])
    node.start()

    status, body = node.get("/ready")
    assert status == 503
    checks = {check["name"]: check for check in json.loads(body)["checks"]}
    assert "orders-1" in checks["logs-usable"]["detail"]
    assert "orders-0" not in checks["logs-usable"]["detail"]
    assert metrics(node)["penstock_partitions_failed"] == 1
    assert read_values(node, "orders", 0) == [b"0", b"1", b"2", b"3", b"4"]
    assert publish(node, "orders", [b"5"], partition=0) == [5]
    with pytest.raises(KafkaException):
        watermarks(node, "orders", 1)
    with pytest.raises(AssertionError, match="KafkaError"):
        publish(node, "orders", [b"5"], partition=1, **{"message.timeout.ms": 1000})
    # Nothing was cut: a replica or a backup can still repair it.
    assert path.read_bytes() == data[:cut_at]


def test_a_flipped_byte_is_found_by_the_scrub_and_never_served(start_node: StartNode) -> None:
    node = start_node("--scrub-interval-ms", "200")
    create_topic(node, "orders")
    publish_batches(node, "orders", [b"value %d" % number for number in range(6)])
    path = log_file(node, "orders")
    flip(path, batch_positions(path.read_bytes())[2] + 70)

    (damage,) = wait_until(lambda: logged(node, "damage found"), "the scrub finds the damage")
    assert damage["log"] == "orders-0"
    assert damage["offset"] == 2
    errors, served = fetch_from(node, 2)
    assert served == []
    assert errors > 0
    assert [each.offset() for each in read(node, "orders", start=3)] == [3, 4, 5]
    _, served = fetch_from(node, 0)
    assert served == [0, 1]
    assert publish(node, "orders", [b"more"]) == [6]
    rounds = metrics(node)['penstock_errors_total{door="kafka",error="Corruption"}']
    assert rounds >= errors > 0
    assert len(logged(node, "damage found")) == 1
    assert verify(node).returncode != 0


def test_a_byte_that_flipped_while_the_node_was_down_is_not_sent_to_clients_that_do_not_compare(
    start_node: StartNode,
) -> None:
    node = start_node()
    create_topic(node, "orders")
    publish_batches(node, "orders", [b"value %d" % number for number in range(6)])
    # After a kill it would look by itself at what was written last.
    node.stop()
    path = log_file(node, "orders")
    # In a value, where only the checksum shows it.
    flip(path, batch_positions(path.read_bytes())[3] - 4)
    node.start()

    _, served = fetch_from(node, 0)

    assert served == [0, 1]
    (damage,) = wait_until(lambda: logged(node, "damage found"), "the damage is told")
    assert damage["offset"] == 2
    assert [each.offset() for each in read(node, "orders", start=3)] == [3, 4, 5]


def test_a_flipped_byte_that_no_scrub_has_found_is_not_served_as_records(
    start_node: StartNode,
) -> None:
    node = start_node()
    create_topic(node, "orders")
    publish_batches(node, "orders", [b"value %d" % number for number in range(3)])
    path = log_file(node, "orders")
    flip(path, batch_positions(path.read_bytes())[1] + 70)

    reading = ["consume", "orders", "--from-beginning", "--exit-at-end", "--json"]
    printed = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "-b", node.bootstrap, *reading],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    status, shown = node.get("/v1/topics/orders/records?offset=1")

    assert printed.returncode == 1
    assert json.loads(printed.stderr)["error"]["type"] == "Corruption"
    assert all(json.loads(line)["offset"] == 0 for line in printed.stdout.splitlines())
    assert (status, json.loads(shown)["error"]["type"]) == (500, "Corruption")


def flip(path: Path, position: int) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        flipped = file.read(1)[0] ^ 0x40
        file.seek(position)
        file.write(bytes([flipped]))


def fetch_from(node: NodeProcess, offset: int) -> tuple[float, list[int]]:
    """Read until the node has answered with errors; return how many, and what was served."""
    series = 'penstock_errors_total{door="kafka",error="Corruption"}'
    before = metrics(node).get(series, 0.0)
    # What it is sent counts, not what it makes of it.
    reader = consumer(node, **{"check.crcs": False})
    reader.assign([TopicPartition("orders", 0, offset)])
    served: list[int] = []
    deadline = time.monotonic() + 20
    try:
        while metrics(node).get(series, 0.0) < before + 2 and time.monotonic() < deadline:
            served += [
                each.offset() or 0
                for each in reader.consume(10, timeout=0.1)
                if each.error() is None
            ]
    finally:
        reader.close()
    return metrics(node).get(series, 0.0) - before, served

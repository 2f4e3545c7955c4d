"""Disks that are nearly full, and one that really is."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from tests.integration.clients import (
    WAIT_S,
    consumer,
    create_topic,
    delete_topic,
    metrics,
    producer,
    publish,
    read_values,
    verify,
    wait_until,
)
from tests.integration.conftest import StartNode
from tests.processes import NodeProcess

SMALL_BYTES = 8 * 1024 * 1024


def refusal(node: NodeProcess, topic: str) -> KafkaError:
    """Publish once and return the error that the node answers with."""
    refused: list[KafkaError | None] = []
    sender = producer(node, **{"retries": 0, "message.timeout.ms": 120_000})

    def note(error: KafkaError | None, _message: Message) -> None:
        refused.append(error)

    sender.produce(topic, b"refused", partition=0, on_delivery=note)
    sender.flush(WAIT_S)
    (error,) = refused
    assert error is not None
    return error


def test_a_nearly_full_disk_refuses_publishes_and_nothing_else(
    start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node()
    create_topic(node, "orders")
    publish(node, "orders", [b"before"])
    assert node.stop() == 0
    node.flags = ("--disk-free-bytes-min", str(shutil.disk_usage(tmp_path).total))
    node.start()

    error = refusal(node, "orders")
    assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
    assert read_values(node, "orders") == [b"before"]
    reader = consumer(node, "billing")
    reader.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    assert reader.committed([TopicPartition("orders", 0)], timeout=WAIT_S)[0].offset == 1
    reader.close()
    status, body = node.get("/ready")
    assert status == 503
    assert {
        check["name"]: check["passed"]
        for check in json.loads(body)["checks"]
        if not check["passed"]
    } == {"disk-space": False}
    assert metrics(node)["penstock_disk_is_low"] == 1
    # What frees the disk is possible.
    delete_topic(node, "orders")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes, where the system lets us mount one."""
    directory = tmp_path / "small"
    directory.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(directory)],
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.decode().strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.mark.crash
def test_a_full_disk_loses_nothing_and_publishes_work_when_there_is_room(
    start_node: StartNode, small_disk: Path
) -> None:
    node = start_node("--disk-free-bytes-min", "0", directory=small_disk)
    node_log = node.log_path
    create_topic(node, "orders", segment_bytes="1048576")
    create_topic(node, "others")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(SMALL_BYTES // 2))
    acknowledged: dict[int, bytes] = {}
    refused: dict[bytes, KafkaError] = {}

    fill_up(node, acknowledged, refused)
    assert next(iter(refused.values())).code() == KafkaError.KAFKA_STORAGE_ERROR
    check_stored(node, acknowledged, refused)
    assert metrics(node)["penstock_partitions_failed"] == 0

    filler.unlink()
    (offset,) = publish(node, "orders", [b"there is room"], **{"message.timeout.ms": 120_000})
    acknowledged[offset] = b"there is room"
    check_stored(node, acknowledged, refused)
    filler.write_bytes(b"")
    with suppress(OSError):
        fill_file(filler)
    fill_up(node, acknowledged, refused)
    node.kill()
    filler.unlink()
    node.start()
    check_stored(node, acknowledged, refused)
    assert wait_until(lambda: publish(node, "others", [b"fine"]) == [0], "others work")
    assert node.stop() == 0, node_log.read_text()
    assert verify(node).returncode == 0


def fill_file(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(65536))


def fill_up(
    node: NodeProcess, acknowledged: dict[int, bytes], refused: dict[bytes, KafkaError]
) -> None:
    """Publish until the node refuses."""
    already = len(refused)
    settings = {"retries": 0, "message.timeout.ms": 120_000, "linger.ms": 0}
    sender = producer(node, **settings)

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused[message.value() or b""] = error
        else:
            acknowledged[message.offset() or 0] = message.value() or b""

    for number in range(4 * SMALL_BYTES // 16384):
        value = b"%d " % number + os.urandom(16384)
        sender.produce("orders", value, partition=0, on_delivery=note)
        sender.flush(WAIT_S)
        if len(refused) > already:
            return
    raise AssertionError("the disk never ran full")


def check_stored(
    node: NodeProcess, acknowledged: dict[int, bytes], refused: dict[bytes, KafkaError]
) -> None:
    """What was acknowledged is there once, in its place; nothing else is but what was refused.

    A batch that consensus held when the disk ran full is written when there is room.
    """
    stored = read_values(node, "orders")
    assert all(stored[offset] == value for offset, value in acknowledged.items())
    others = [value for offset, value in enumerate(stored) if offset not in acknowledged]
    assert len(set(others)) == len(others)
    assert set(others) <= set(refused)

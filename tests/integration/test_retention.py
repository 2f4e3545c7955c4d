"""Retention, compaction and deleted records on a running node, and the same after a restart."""

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from confluent_kafka import Message, TopicPartition

from tests.integration.clients import (
    alter_topic,
    ask,
    create_topic,
    publish,
    publish_batches,
    read,
    read_values,
    verify,
    wait_until,
    watermarks,
)
from tests.processes import NodeProcess

SEGMENT = "1024"
VALUE = b"v" * 300


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all tests here; each leaves it running."""
    directory = tmp_path_factory.mktemp("node")
    with NodeProcess(directory, "--housekeeping-interval-ms", "200") as running:
        yield running


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.crash
def test_old_segments_go_by_time_and_by_bytes_also_after_a_restart(node: NodeProcess) -> None:
    create_topic(node, "by-time", segment_bytes=SEGMENT, retention_ms="600000")
    create_topic(node, "by-bytes", segment_bytes=SEGMENT, retention_bytes="3000")
    create_topic(node, "kept", segment_bytes=SEGMENT, retention_ms="-1")
    hour_ago = now_ms() - 3_600_000
    for timestamp in (hour_ago, now_ms()):
        for _ in range(10):
            publish(node, "by-time", [VALUE], timestamp=timestamp)
    publish_batches(node, "by-bytes", [VALUE] * 20)
    publish(node, "kept", [VALUE] * 3, timestamp=hour_ago, **{"batch.num.messages": 1})

    wait_until(lambda: watermarks(node, "by-time")[0] >= 8, "old records go")
    wait_until(lambda: watermarks(node, "by-bytes")[0] >= 10, "records above the size go")
    low, high = watermarks(node, "by-time")
    assert low <= 10
    assert high == 20
    assert [each.offset() for each in read(node, "by-time")] == list(range(low, 20))
    assert watermarks(node, "kept") == (0, 3)
    first_by_bytes = watermarks(node, "by-bytes")[0]
    node.kill()
    node.start()

    assert watermarks(node, "by-time") == (low, high)
    assert watermarks(node, "by-bytes") == (first_by_bytes, 20)
    alter_topic(node, "kept", retention_ms="1000")
    alter_topic(node, "by-time", retention_ms="-1")
    publish(node, "by-time", [VALUE], timestamp=hour_ago)
    # The segment.bytes of before the restart still begins new segments.
    publish_batches(node, "kept", [VALUE] * 4)
    wait_until(lambda: watermarks(node, "kept")[0] >= 3, "a changed setting takes effect")
    assert watermarks(node, "by-time") == (low, 21)
    assert verify(node).returncode == 0


def latest(messages: list[Message]) -> dict[bytes | None, bytes | None]:
    return {message.key(): message.value() for message in messages}


def publish_fillers(
    node: NodeProcess, expected: dict[bytes | None, bytes | None], name: str
) -> None:
    for number in range(10):
        key = f"{name} {number}".encode()
        publish(node, "prices", [VALUE], key=key)
        expected[key] = VALUE


@pytest.mark.crash
def test_compaction_keeps_the_latest_of_each_key_and_honours_tombstones(node: NodeProcess) -> None:
    create_topic(
        node,
        "prices",
        cleanup_policy="compact",
        segment_bytes=SEGMENT,
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
    )
    expected: dict[bytes | None, bytes | None] = {}
    for number in range(60):
        key = b"key %d" % (number % 5)
        value = b"%d " % number + VALUE
        publish(node, "prices", [value], key=key)
        expected[key] = value
    publish(node, "prices", [None], key=b"key 0")
    expected[b"key 0"] = None
    # The active segment is left alone, so these push the rest out of it.
    publish_fillers(node, expected, "first")
    wait_until(lambda: len(read(node, "prices")) < 40, "older values go")
    # On a slow machine the tombstone may be gone already, but no older value of its key is back.
    assert {b"key 0": None, **latest(read(node, "prices"))} == expected
    # A tombstone goes with the pass after the one that cleaned its segment.
    publish_fillers(node, expected, "second")
    wait_until(
        lambda: b"key 0" not in {each.key() for each in read(node, "prices")}, "the tombstone goes"
    )
    del expected[b"key 0"]
    found = read(node, "prices")
    assert latest(found) == expected
    assert all(before.offset() < after.offset() for before, after in pairwise(found))
    end = watermarks(node, "prices")[1]
    assert end == 81
    node.kill()
    node.start()

    assert latest(read(node, "prices")) == expected
    assert publish(node, "prices", [b"new"], key=b"key 1") == [end]
    assert verify(node).returncode == 0


@pytest.mark.crash
def test_deleted_records_stay_deleted_and_their_segments_go(node: NodeProcess) -> None:
    create_topic(node, "orders", segment_bytes=SEGMENT)
    publish_batches(node, "orders", [b"%d " % number + VALUE for number in range(12)])
    directory = node.data_dir / "topics" / "orders" / "0"
    segments = len(list(directory.glob("*.log")))

    deleted = ask(node, lambda client: client.delete_records([TopicPartition("orders", 0, 7)]))

    assert [each.low_watermark for each in deleted] == [7]
    assert watermarks(node, "orders") == (7, 12)
    wait_until(lambda: len(list(directory.glob("*.log"))) < segments - 1, "segments go")
    node.kill()
    node.start()
    assert watermarks(node, "orders") == (7, 12)
    assert [each.offset() for each in read(node, "orders")] == list(range(7, 12))
    ask(node, lambda client: client.delete_records([TopicPartition("orders", 0, -1)]))
    assert watermarks(node, "orders") == (12, 12)
    assert read_values(node, "orders") == []
    assert publish(node, "orders", [b"next"]) == [12]

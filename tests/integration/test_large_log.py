"""A start over a million records."""

import pytest

from tests.integration.clients import (
    create_topic,
    logged,
    producer,
    publish,
    read,
    verify,
    watermarks,
)
from tests.integration.conftest import StartNode

RECORDS = 1_000_000
BATCH_RECORDS = 50


@pytest.mark.crash
def test_a_node_starts_over_a_million_records_after_a_stop_and_after_a_kill(
    start_node: StartNode,
) -> None:
    node = start_node("--segment-bytes", "8MiB")
    create_topic(node, "events")
    sender = producer(
        node,
        **{
            "batch.num.messages": BATCH_RECORDS,
            "queue.buffering.max.messages": RECORDS,
            "linger.ms": 100,
            "max.in.flight": 100,
        },
    )
    for number in range(RECORDS):
        sender.produce("events", b"%d" % number, partition=0)
    assert sender.flush(100) == 0

    assert node.stop() == 0
    node.start()
    assert watermarks(node, "events") == (0, RECORDS)
    last = read(node, "events", start=RECORDS - 10)
    assert [each.offset() for each in last] == list(range(RECORDS - 10, RECORDS))
    assert publish(node, "events", [b"one more"]) == [RECORDS]
    node.kill()
    node.start()
    assert watermarks(node, "events") == (0, RECORDS + 1)
    assert read(node, "events", start=RECORDS)[0].value() == b"one more"
    assert logged(node, "partition is damaged") == []
    node.kill()
    assert verify(node).returncode == 0

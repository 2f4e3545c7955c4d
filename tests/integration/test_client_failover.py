"""The Python client goes on while nodes of its cluster die, and what it was told holds."""

from pathlib import Path

import pytest

from penstock.client import Client
from tests.processes import ClusterProcess

MESSAGES = 150


@pytest.mark.crash
def test_no_message_is_lost_or_doubled_when_a_node_is_killed(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:
        urls = [node.http_url for node in cluster.nodes.values()]
        with Client(urls, retry_s=60) as client:
            client.create_topic("orders", partitions=1, replication_factor=3)
            told = []
            for number in range(MESSAGES):
                if number == MESSAGES // 3:
                    cluster[client.topic("orders").partitions[0].leader].kill()
                told.append(client.publish("orders", str(number)).id)

            received: list[str] = []
            while len(received) < MESSAGES:
                messages = client.receive("orders", "billing", wait_s=30, count_max=50)
                assert messages, f"only {len(received)} messages were received"
                received += [each.text() for each in messages]
                assert client.ack_batch(messages) == []

            assert received == [str(number) for number in range(MESSAGES)]
            assert len(set(told)) == MESSAGES
            assert client.receive("orders", "billing") == []

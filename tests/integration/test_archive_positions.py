"""How far an archive is known to be: told over HTTP, kept by every replica, waited for."""

from pathlib import Path

import pytest

from penstock.client import ArchivedTopic, ArchiveState, Client
from penstock.errors import Conflict, TopicNotFound
from tests.integration.clients import create_topic, publish_batches, wait_until, watermarks
from tests.processes import ClusterProcess, NodeProcess

VALUE = b"v" * 300


@pytest.mark.crash
def test_a_position_outlives_its_leader_and_lets_segments_go(tmp_path: Path) -> None:
    with (
        ClusterProcess(tmp_path, 3, "--housekeeping-interval-ms", "200") as cluster,
        Client([node.http_url for node in cluster.nodes.values()]) as client,
    ):
        settings = {"segment.bytes": "1024", "retention.bytes": "0", "archive.path": "/archive"}
        client.create_topic("orders", partitions=1, replication_factor=3, settings=settings)
        publish_batches(cluster[1], "orders", [VALUE] * 20)
        (archive,) = client.archives.list()
        client.archives.report(archive, table="t", offsets={0: 7})
        wait_until(lambda: watermarks(cluster[1], "orders")[0] > 0, "archived segments go")

        leader = client.topic("orders").partitions[0].leader
        cluster[leader].kill()
        # Each replica lets its own segments go, and the new leader may be about to.
        state = wait_until(lambda: moved_on(client), "segments go on another leader, too")
        steps = client.trace("orders", "0-6")

    assert archive.path == "/archive"
    assert state.partitions[0].archived == 7
    assert 0 < state.partitions[0].start <= 7
    assert [each.detail for each in steps if each.kind == "ARCHIVED"] == ["in /archive"]


def moved_on(client: Client) -> ArchiveState | None:
    state = client.archives.get("orders")
    return state if state.partitions[0].start > 0 else None


def test_reports_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, Client(node.http_url) as client:
        create_topic(node, "orders", archive_path="/archive")
        create_topic(node, "plain")
        (archive,) = client.archives.list()
        foreign = ArchivedTopic(topic="orders", topic_id="other", path="/archive")

        with pytest.raises(Conflict, match="the topic was created anew"):
            client.archives.report(foreign, table="t", offsets={0: 0})
        with pytest.raises(TopicNotFound, match="topic orders has no partition 4"):
            client.archives.report(archive, table="t", offsets={4: 0})

        assert client.archives.get("plain").path == ""

"""Damage on one of three real nodes: found, never served, mended from the others."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.client import Client, ClusterAdmin
from penstock.errors import Corruption, PenstockError
from tests.cluster_views import (
    DEADLINE_S,
    leader_of,
    new_replicated_topic,
    stored_bytes,
    view_from,
    wait_for,
)
from tests.kafka_clients import open_consumer, publish, unique
from tests.processes import ClusterProcess, NodeProcess

pytestmark = pytest.mark.crash

VALUES: list[bytes | None] = [b"value-%d" % number for number in range(200)]
OPENSSL = shutil.which("openssl")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Three nodes that look for damage all the time."""
    with ClusterProcess(
        tmp_path_factory.mktemp("repair"), 3, "--scrub-interval-ms", "300"
    ) as running:
        yield running


def log_file(node: NodeProcess, topic: str) -> Path:
    return node.data_dir / "topics" / topic / "0" / f"{1:020}.log"


def follower_of(cluster: ClusterProcess, topic: str) -> int:
    return min({1, 2, 3} - {leader_of(cluster, topic)})


def published_topic(cluster: ClusterProcess) -> str:
    """A topic with three replicas that all hold the same records."""
    topic = new_replicated_topic(cluster, unique("repair"))
    # Several batches, so that damage has whole ones on both sides.
    for first in range(0, len(VALUES), 20):
        publish(cluster[1], topic, VALUES[first : first + 20])
    wait_until_alike(cluster, topic)
    return topic


def wait_until_alike(cluster: ClusterProcess, topic: str) -> None:
    wait_for(
        lambda: len({stored_bytes(node, topic, 0) for node in cluster.nodes.values()}) == 1,
        "all replicas hold the same bytes",
    )


def test_a_flipped_bit_on_a_follower_is_found_and_mended(cluster: ClusterProcess) -> None:
    topic = published_topic(cluster)
    damaged = cluster[follower_of(cluster, topic)]
    whole = stored_bytes(damaged, topic, 0)

    with log_file(damaged, topic).open("r+b") as file:
        file.seek(len(whole) // 2)
        file.write(bytes([whole[len(whole) // 2] ^ 0x10]))

    wait_for(
        lambda: [line for line in damaged.log_lines() if line["message"] == "damage mended"],
        "the damage is mended",
    )
    assert stored_bytes(damaged, topic, 0) == whole


def test_damage_that_a_queue_meets_is_found_at_once_and_read_from_another_replica(
    tmp_path: Path,
) -> None:
    # No background check comes by while this runs.
    with ClusterProcess(tmp_path / "met", 3) as cluster:
        topic = published_topic(cluster)
        leader = cluster[leader_of(cluster, topic)]
        size = len(stored_bytes(leader, topic, 0))
        with log_file(leader, topic).open("r+b") as file:
            file.seek(size // 2)
            (byte,) = file.read(1)
            file.seek(size // 2)
            file.write(bytes([byte ^ 0x10]))

        received: list[bytes | None] = []
        with Client(leader.http_url) as client:

            def receive_all() -> bool:
                try:
                    messages = client.receive(topic, "readers", count_max=1_000, wait_s=1)
                except Corruption:
                    return False
                received.extend(message.value for message in messages)
                client.ack_batch(messages)
                return len(received) == len(VALUES)

            wait_for(receive_all, "all messages are received")

        assert received == VALUES
        assert [line for line in leader.log_lines() if line["message"] == "damage found"]


def test_a_replica_whose_file_is_cut_begins_anew_and_catches_up(cluster: ClusterProcess) -> None:
    topic = published_topic(cluster)
    # A follower may have got all of it in one flush, and a cut there looks like a torn write. What
    # was flushed before a later entry is known to have been durable.
    publish(cluster[1], topic, VALUES[:1])
    wait_until_alike(cluster, topic)
    node_id = follower_of(cluster, topic)
    damaged = cluster[node_id]
    whole = stored_bytes(damaged, topic, 0)
    damaged.kill()
    with log_file(damaged, topic).open("r+b") as file:
        file.truncate(len(whole) // 2)

    damaged.start()

    wait_for(
        lambda: log_file(damaged, topic).exists() and stored_bytes(damaged, topic, 0) == whole,
        "the replica is whole again",
    )
    assert list((damaged.data_dir / "damaged").iterdir()), "the damaged files are kept"


@pytest.mark.parametrize("lost", [f"{1:020}.log", "vote"])
def test_a_replica_that_has_lost_a_file_begins_anew_and_catches_up(
    cluster: ClusterProcess, lost: str
) -> None:
    topic = published_topic(cluster)
    damaged = cluster[follower_of(cluster, topic)]
    whole = stored_bytes(damaged, topic, 0)
    assert damaged.stop() == 0
    set_aside = damaged.data_dir / "damaged"
    before = len(list(set_aside.iterdir())) if set_aside.exists() else 0
    (log_file(damaged, topic).parent / lost).unlink()

    damaged.start()

    wait_for(
        lambda: log_file(damaged, topic).exists() and stored_bytes(damaged, topic, 0) == whole,
        "the replica is whole again",
    )
    assert len(list(set_aside.iterdir())) == before + 1, "the damaged files are kept"


def test_a_replica_begins_anew_when_the_others_have_forgotten_what_it_knows_to_be_final(
    cluster: ClusterProcess, tmp_path: Path
) -> None:
    topic = published_topic(cluster)
    forgetful = [cluster[node_id] for node_id in {1, 2, 3} - {leader_of(cluster, topic)}]
    (other,) = [node for node in cluster.nodes.values() if node not in forgetful]
    for node in forgetful:
        node.kill()
        shutil.copytree(partition_of(node, topic), tmp_path / node.data_dir.parent.name)
        node.start()
    publish(cluster[1], topic, [b"lost-%d" % number for number in range(50)])
    wait_until_alike(cluster, topic)
    assert other.stop() == 0
    # A power cut takes the newest records of both, and no votes, which were synced.
    for node in forgetful:
        node.kill()
        directory = partition_of(node, topic)
        vote = (directory / "vote").read_bytes()
        shutil.rmtree(directory)
        shutil.copytree(tmp_path / node.data_dir.parent.name, directory)
        (directory / "vote").write_bytes(vote)
    for node in forgetful:
        node.launch()
    for node in forgetful:
        node.wait_until_serving()
    publish(forgetful[0], topic, [b"kept-%d" % number for number in range(30)])

    other.start()

    wait_until_alike(cluster, topic)
    assert b"kept-29" in stored_bytes(other, topic, 0)
    assert b"lost-0" not in stored_bytes(other, topic, 0)
    kept = [path for path in (other.data_dir / "damaged").iterdir() if topic in path.name]
    assert any(b"lost-49" in log.read_bytes() for path in kept for log in path.glob("*.log"))


def partition_of(node: NodeProcess, topic: str) -> Path:
    return log_file(node, topic).parent


def group_log(node: NodeProcess, shard: int) -> Path:
    return node.data_dir / "groups" / str(shard) / f"{1:020}.state"


def commit_offsets(cluster: ClusterProcess, topic: str, groups: Sequence[str]) -> None:
    for group in groups:
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0}
        )
        consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
        consumer.close()


@pytest.mark.parametrize("way", ["cut", "flip"])
def test_a_damaged_log_of_consumer_groups_begins_anew_and_catches_up(
    cluster: ClusterProcess, way: str
) -> None:
    topic = published_topic(cluster)
    groups = [unique("readers") for _ in range(30)]
    commit_offsets(cluster, topic, groups)
    damaged = cluster[3]
    damaged.kill()
    begins = {node_id: len(node.log_path.read_bytes()) for node_id, node in cluster.nodes.items()}
    shards = [shard for shard in range(8) if damage_middle(group_log(damaged, shard), way)]

    damaged.start()

    wait_for(
        lambda: all(
            is_same_everywhere(cluster, shard) and votes_again(cluster, begins, shard)
            for shard in shards
        ),
        "the logs of consumer groups are whole again",
    )
    cluster[1].kill()
    try:
        # Some of the groups are coordinated by the node that has replaced its logs.
        for group in groups:
            assert committed(cluster, topic, group) == 7
        commit_offsets(cluster, topic, groups)
    finally:
        cluster[1].start()


def damage_middle(path: Path, way: str) -> bool:
    """Damage a file that holds enough, in the middle."""
    whole = path.read_bytes()
    # Zeros at the end were written ahead and are no entries, except for the last few.
    middle = len(whole.rstrip(b"\0")) // 2
    if middle < 250:
        return False
    rest = whole[middle + 1 :] if way == "flip" else b""
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0x10]) + rest)
    return True


def test_consumer_groups_whose_last_commit_has_rotted_are_whole_again_while_nothing_happens(
    cluster: ClusterProcess,
) -> None:
    topic = published_topic(cluster)
    groups = [unique("readers") for _ in range(30)]
    commit_offsets(cluster, topic, groups)
    wait_for(
        lambda: all(is_same_everywhere(cluster, shard) for shard in range(8)),
        "all nodes know of the commits",
    )
    damaged = cluster[3]
    damaged.kill()
    for shard in range(8):
        damage_last_entry(group_log(damaged, shard))

    damaged.start()

    # A leader has counted on what its follower cuts like a torn write.
    wait_for(
        lambda: all(is_same_everywhere(cluster, shard) for shard in range(8)),
        "the logs of consumer groups are whole again",
    )
    for group in groups:
        assert committed(cluster, topic, group) == 7


def damage_last_entry(path: Path) -> None:
    whole = path.read_bytes()
    last = len(whole.rstrip(b"\0")) - 1
    path.write_bytes(whole[:last] + bytes([whole[last] ^ 0x10]) + whole[last + 1 :])


def is_same_everywhere(cluster: ClusterProcess, shard: int) -> bool:
    """True when every replica of a shard holds the same entries."""
    logs = [group_log(node, shard).read_bytes() for node in cluster.nodes.values()]
    return len({log.rstrip(b"\0") for log in logs}) == 1


def votes_again(cluster: ClusterProcess, begins: dict[int, int], shard: int) -> bool:
    """True when a replica was given its vote again since then, or was mended and never lost it."""
    lines = [
        line for node_id, node in cluster.nodes.items() for line in node.log_lines(begins[node_id])
    ]
    is_mended = any(
        line["message"] == "damage mended" and f"/groups/{shard}/" in str(line["path"])
        for line in lines
    )
    return is_mended or any(
        line["message"] == "membership changes"
        and line["log"] == f"groups-{shard}"
        and line["voters"] == [1, 2, 3]
        for line in lines
    )


def committed(cluster: ClusterProcess, topic: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=120)
        return found.offset
    finally:
        consumer.close()


@pytest.mark.parametrize("way", ["cut", "flip"])
def test_a_damaged_replica_of_the_metadata_begins_anew_and_catches_up(
    cluster: ClusterProcess, way: str
) -> None:
    topic = published_topic(cluster)
    damaged = cluster[2]
    path = damaged.data_dir / "metadata" / f"{1:020}.state"
    damaged.kill()
    assert damage_middle(path, way)

    damaged.start()

    assert view_from(damaged) == view_from(cluster[1])
    later = new_replicated_topic(cluster, unique("later"))
    for name in (topic, later):
        publish(cluster[1], name, [b"afterwards"])
        wait_for(
            lambda name=name: b"afterwards" in stored_bytes(damaged, name, 0),
            "the node follows again",
        )
    assert {path.name.rsplit(".", 1)[0] for path in (damaged.data_dir / "damaged").iterdir()} >= {
        "metadata"
    }
    damaged.kill()
    damaged.start()
    assert view_from(damaged).replicas == view_from(cluster[1]).replicas


def test_metadata_that_turns_out_to_be_damaged_is_replaced_while_the_node_runs(
    tmp_path: Path,
) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:
        topic = new_replicated_topic(cluster, unique("before"))
        cluster[3].kill()
        for _ in range(3):
            new_replicated_topic(cluster, unique("what-the-third-node-lacks"))
        damaged = cluster[2]
        path = damaged.data_dir / "metadata" / f"{1:020}.state"
        wait_for(lambda: len({_entries(cluster[each]) for each in (1, 2)}) == 1, "both know it")
        whole = _entries(damaged)
        with path.open("r+b") as file:
            file.seek(len(whole) - 5)
            file.write(bytes([whole[-5] ^ 0x10]))
        cluster[1].kill()

        # Now the damaged one has to lead, and to read what it sends.
        cluster[3].launch()
        wait_for(lambda: _says(damaged, "replica failed"), "the damage is noticed")
        cluster[1].start()

        wait_for(lambda: _says(damaged, "metadata replaced"), "the metadata is replaced")
        later = new_replicated_topic(cluster, unique("later"))
        for name in (topic, later):
            publish(cluster[1], name, [b"afterwards"])
            wait_for(
                lambda name=name: b"afterwards" in stored_bytes(damaged, name, 0),
                "the node follows again",
            )
        assert view_from(damaged).replicas == view_from(cluster[1]).replicas
        damaged.kill()
        damaged.start()
        assert view_from(damaged).replicas == view_from(cluster[1]).replicas


def _entries(node: NodeProcess) -> bytes:
    """The metadata of a node, without zeros that were written ahead."""
    return (node.data_dir / "metadata" / f"{1:020}.state").read_bytes().rstrip(b"\0")


def _says(node: NodeProcess, message: str) -> bool:
    return any(
        line["message"] == message and line.get("log", "metadata") == "metadata"
        for line in node.log_lines()
    )


def test_damage_that_comes_to_light_while_a_log_is_in_use_is_replaced_too(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:
        topic = new_replicated_topic(cluster, unique("used"))
        publish(cluster[1], topic, VALUES)
        leader = leader_of(cluster, topic)
        damaged, away = sorted({1, 2, 3} - {leader})
        cluster[away].kill()
        publish(cluster[leader], topic, [b"what the third node lacks"] * 20)
        wait_for(
            lambda: (
                stored_bytes(cluster[damaged], topic, 0) == stored_bytes(cluster[leader], topic, 0)
            ),
            "two replicas hold everything",
        )
        whole = stored_bytes(cluster[damaged], topic, 0)
        with log_file(cluster[damaged], topic).open("r+b") as file:
            file.seek(len(whole) - 5)
            file.write(bytes([whole[-5] ^ 0x10]))
        cluster[leader].kill()

        # Now the damaged one has to lead, and to read what it sends.
        cluster[away].launch()
        wait_for(
            lambda: any(
                line["message"] == "replica failed" and line["log"] == f"{topic}-0"
                for line in cluster[damaged].log_lines()
            ),
            "the damage is noticed",
        )
        cluster[leader].start()

        wait_for(
            lambda: stored_bytes(cluster[damaged], topic, 0) == whole, "the replica is whole again"
        )
        assert list((cluster[damaged].data_dir / "damaged").glob(f"{topic}-0.*"))


def test_readers_of_a_leader_that_has_rotted_get_what_was_published_and_it_is_mended(
    tmp_path: Path,
) -> None:
    # The background check comes once a day.
    with ClusterProcess(tmp_path, 3) as cluster:
        topic = published_topic(cluster)
        rotten = follower_of(cluster, topic)
        whole = stored_bytes(cluster[rotten], topic, 0)
        cluster[rotten].stop()
        with log_file(cluster[rotten], topic).open("r+b") as file:
            file.seek(len(whole) // 2)
            file.write(bytes([whole[len(whole) // 2] ^ 0x10]))
        cluster[rotten].start()
        lead(cluster, topic, rotten)

        values = values_from_the_start(cluster, topic, count=len(VALUES))

        assert values == VALUES
        wait_for(
            lambda: stored_bytes(cluster[rotten], topic, 0) == whole, "the replica is whole again"
        )


def lead(cluster: ClusterProcess, topic: str, node_id: int) -> None:
    operator = ClusterAdmin(cluster[node_id].http_url)

    def leads() -> bool:
        with suppress(PenstockError):
            operator.transfer_leader(topic, 0, node_id)
        return leader_of(cluster, topic) == node_id

    wait_for(leads, f"node {node_id} leads")


def values_from_the_start(cluster: ClusterProcess, topic: str, *, count: int) -> list[bytes | None]:
    """Read with a client that does not compare checksums; errors are not its end."""
    values: list[bytes | None] = []
    with open_consumer(cluster[1], unique("reader"), check_crcs=False) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + DEADLINE_S
        while len(values) < count:
            assert time.monotonic() < deadline, f"{len(values)} of {count} messages came"
            message = reader.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value())
    return values


def test_a_wiped_node_copies_what_the_others_no_longer_have_as_entries(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3, "--housekeeping-interval-ms", "200") as cluster:
        topic = new_replicated_topic(
            cluster, unique("short"), segment_bytes="2048", retention_bytes="4096"
        )
        for _ in range(20):
            publish(cluster[1], topic, VALUES[:20])
        wait_for(lambda: not log_file(cluster[1], topic).exists(), "the first segment is gone")
        cluster[3].kill()
        shutil.rmtree(cluster[3].data_dir)

        cluster[3].start()

        wait_for(
            lambda: [
                line
                for line in cluster[3].log_lines()
                if line["message"] == "snapshot installed" and str(line["log"]).startswith(topic)
            ],
            "the wiped node has installed a snapshot",
        )
        (last,) = publish(cluster[1], topic, [b"afterwards"])
        assert last.offset() == 400
        wait_for(
            lambda: b"afterwards" in stored_bytes(cluster[3], topic, 0),
            "the wiped node follows again",
        )


@pytest.mark.skipif(OPENSSL is None, reason="certificates are made with openssl")
def test_links_with_certificates_of_one_authority_form_a_cluster(tmp_path: Path) -> None:
    make_certificates(tmp_path)

    with ClusterProcess(tmp_path / "nodes", 3, *tls_flags(tmp_path)) as cluster:
        topic = new_replicated_topic(cluster, unique("sealed"))
        acknowledged = publish(cluster[1], topic, VALUES)

        assert [message.offset() for message in acknowledged] == list(range(len(VALUES)))


@pytest.mark.skipif(OPENSSL is None, reason="certificates are made with openssl")
def test_nodes_whose_certificates_are_not_of_one_authority_say_why_they_do_not_meet(
    tmp_path: Path,
) -> None:
    cluster = ClusterProcess(tmp_path, 2)
    nodes = list(cluster.nodes.values())
    try:
        for node in nodes:
            node.directory.mkdir()
            make_certificates(node.directory)
            node.flags = (*node.flags, *tls_flags(node.directory))
            node.launch()

        wait_for(lambda: all(map(is_distrust_told, nodes)), "both nodes say why")
    finally:
        cluster.kill()


@pytest.mark.skipif(OPENSSL is None, reason="certificates are made with openssl")
def test_a_node_that_comes_back_with_new_certificates_meets_nodes_that_run_on(
    tmp_path: Path,
) -> None:
    make_certificates(tmp_path)
    with ClusterProcess(tmp_path / "nodes", 3, *tls_flags(tmp_path)) as cluster:
        topic = new_replicated_topic(cluster, unique("renewed"))
        cluster[3].stop()
        # Of another authority: to the nodes that run these are as bad as expired ones.
        make_certificates(tmp_path)

        cluster[3].start()

        publish(cluster[1], topic, VALUES)
        wait_until_alike(cluster, topic)
        told = [line["message"] for node in (1, 2) for line in cluster[node].log_lines()]
        assert told.count("certificates read again") >= 2


def is_distrust_told(node: NodeProcess) -> bool:
    return any(
        line["message"] == "peer is out of reach" and "certificate is not accepted" in str(line)
        for line in node.log_lines()
    )


def tls_flags(directory: Path) -> tuple[str, ...]:
    return (
        "--peer-tls-certificate", str(directory / "node.pem"),
        "--peer-tls-key", str(directory / "node.key"),
        "--peer-tls-authority", str(directory / "authority.pem"),
    )  # fmt: skip


def make_certificates(directory: Path) -> None:
    """Make an authority and a certificate that it has signed."""
    authority = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority"
    openssl(directory, f"{authority} -keyout authority.key -out authority.pem")
    openssl(directory, "req -newkey rsa:2048 -nodes -subj /CN=node -keyout node.key -out node.csr")
    signed = "x509 -req -in node.csr -CA authority.pem -CAkey authority.key -CAcreateserial"
    openssl(directory, f"{signed} -days 2 -out node.pem")


def openssl(directory: Path, arguments: str) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *arguments.split()], cwd=directory, check=True, capture_output=True)

"""The command line as a person or a script uses it, against a running node."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client import (
    Admin,
    Client,
    Connection,
    NewMessage,
    NewTopic,
    Producer,
    Publication,
)
from tests.kafka_clients import wait_until
from tests.processes import NodeProcess

RUN_WAIT_S = 120
HOUR_MS = 3_600_000
NEW_YEAR_MS = 1_704_067_200_000


class Commands:
    """Runs `penstock` in a process of its own, with the node's address in its environment."""

    def __init__(self, bootstrap: str) -> None:
        self.environ = {**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap, "COLUMNS": "200"}
        self._started: list[subprocess.Popen[bytes]] = []

    def run(
        self, *args: str, stdin: str | bytes = b"", code: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        """Run to the end and insist on the exit code."""
        result = subprocess.run(
            [sys.executable, "-m", "penstock.cli", *args],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=RUN_WAIT_S,
            env=self.environ,
        )
        assert b"Traceback" not in result.stderr, result.stderr.decode()
        assert result.returncode == code, (args, result.stdout, result.stderr.decode())
        return result

    def json(self, *args: str, stdin: str | bytes = b"") -> Any:
        """Run with `--json` and return the one document that it prints."""
        return json.loads(self.run(*args, "--json", stdin=stdin).stdout)

    def read(self, *args: str) -> list[dict[str, Any]]:
        """Consume with `--json` and return all messages."""
        output = self.run("consume", *args, "--json").stdout
        return [json.loads(line) for line in output.splitlines()]

    def values(self, *args: str) -> list[str]:
        """Consume and return the values."""
        return [message["value"] for message in self.read(*args)]

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """Start without waiting."""
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        """Kill what a failed test left running."""
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def penstock(node: NodeProcess) -> Iterator[Commands]:
    commands = Commands(node.bootstrap)
    yield commands
    commands.end()


@pytest.fixture
def fresh_penstock(fresh_node: NodeProcess) -> Iterator[Commands]:
    commands = Commands(fresh_node.bootstrap)
    yield commands
    commands.end()


@pytest.fixture(scope="module")
def connection(node: NodeProcess) -> Connection:
    return Connection(node.bootstrap)


@pytest.fixture
def topic(connection: Connection) -> str:
    """A topic with one partition."""
    name = f"t-{uuid4().hex[:12]}"
    Admin(connection).create_topic(NewTopic(name=name, partitions=1))
    return name


@pytest.fixture
def hourly(connection: Connection, topic: str) -> str:
    """A topic with records 0 to 4, one for each hour from new year 2024 on."""
    publish_hours(connection, topic, range(5))
    return topic


@pytest.fixture
def shuffled(connection: Connection, topic: str) -> str:
    """A topic with records named after hours of new year 2024, not in their order."""
    publish_hours(connection, topic, (10, 12, 11, 9, 13))
    return topic


@pytest.fixture
def group() -> str:
    return f"g-{uuid4().hex[:12]}"


def publish_hours(connection: Connection, topic: str, hours: Iterable[int]) -> None:
    with Producer(connection, on_placed=lambda _: None) as producer:
        for hour in hours:
            time_ms = NEW_YEAR_MS + hour * HOUR_MS
            value = str(hour).encode()
            producer.send(NewMessage(topic=topic, value=value, timestamp_ms=time_ms))
        producer.flush()


def remove_records(connection: Connection, topic: str, *, before: int) -> None:
    admin = Admin(connection).librdkafka
    (removed,) = admin.delete_records([KafkaPartition(topic, 0, before)]).values()
    removed.result(RUN_WAIT_S)


def partition_counts(description: dict[str, Any]) -> list[int]:
    held = [each["offsets"] for each in description["partitions"]]
    return [each["end"] - each["start"] for each in held]


# Topics.


def test_a_topic_lives_from_its_creation_to_its_deletion(penstock: Commands) -> None:
    name = f"t-{uuid4().hex[:12]}"

    created = penstock.json("topic", "create", name, "-p", "2", "--set", "retention.ms=1h")
    assert created == {"topic": name, "created": True}
    assert name in [each["name"] for each in penstock.json("topic", "list")]

    penstock.run("topic", "alter", name, "--set", "max.message.bytes=1MiB")
    penstock.run("topic", "add-partitions", name, "3")
    described = penstock.json("topic", "describe", name)
    settings = {each["name"]: each["value"] for each in described["settings"]}
    assert settings["retention.ms"] == "3600000"
    assert settings["max.message.bytes"] == "1048576"
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert partition_counts(described) == [0, 0, 0]

    penstock.run("topic", "delete", name)
    assert name not in [each["name"] for each in penstock.json("topic", "list")]


def test_people_get_tables(penstock: Commands, topic: str) -> None:
    assert topic in penstock.run("topic", "list").stdout.decode()
    described = penstock.run("topic", "describe", topic, "--all").stdout.decode()
    for word in ("partition", "leader", "retention.ms", "cleanup.policy"):
        assert word in described


def test_a_setting_returns_to_its_default(penstock: Commands, topic: str) -> None:
    penstock.run("topic", "alter", topic, "--set", "retention.ms=5s")
    penstock.run("topic", "alter", topic, "--reset", "retention.ms")

    settings = penstock.json("topic", "describe", topic)["settings"]
    assert [each["is_default"] for each in settings if each["name"] == "retention.ms"] == [True]


def test_a_topic_that_exists_is_an_error_unless_that_is_accepted(
    penstock: Commands, topic: str
) -> None:
    refused = penstock.run("topic", "create", topic, code=1)
    accepted = penstock.json("topic", "create", topic, "--if-not-exists")

    assert "exist" in refused.stderr.decode()
    assert accepted == {"topic": topic, "created": False}


@pytest.mark.parametrize(
    "args",
    [
        ("topic", "describe", "missing"),
        ("topic", "delete", "missing"),
        ("topic", "alter", "missing", "--set", "retention.ms=1h"),
        ("topic", "add-partitions", "missing", "3"),
        ("consume", "missing"),
    ],
)
def test_a_missing_topic_is_told_and_never_created(
    penstock: Commands, args: tuple[str, ...]
) -> None:
    result = penstock.run(*args, "--json", code=1)

    assert json.loads(result.stderr)["error"]["type"] == "TopicNotFound"
    assert "missing" not in [each["name"] for each in penstock.json("topic", "list")]


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        (("create", "with space"), "InvalidTopicName"),
        (("create", "x", "--set", "retention.ms=-5"), "InvalidSetting"),
        (("create", "x", "--set", "no.such.setting=1"), "InvalidSetting"),
        (("create", "x", "--replication-factor", "3"), "InvalidReplication"),
    ],
)
def test_what_the_broker_refuses_is_told_in_our_own_words(
    penstock: Commands, args: tuple[str, ...], kind: str
) -> None:
    result = penstock.run("topic", *args, "--json", code=1)

    assert json.loads(result.stderr)["error"]["type"] == kind


def test_partitions_cannot_become_fewer(penstock: Commands, topic: str) -> None:
    result = penstock.run("topic", "add-partitions", topic, "1", "--json", code=1)

    assert json.loads(result.stderr)["error"]["type"] == "InvalidPartitionCount"


# Messages.


def test_lines_are_published_and_read_back_in_order(penstock: Commands, topic: str) -> None:
    lines = [f"line {number}" for number in range(1_000)]

    published = penstock.json("produce", topic, stdin="\n".join(lines))

    partition = {"partition": 0, "count": 1_000, "first_offset": 0, "last_offset": 999}
    assert published == {"topic": topic, "count": 1_000, "partitions": [partition]}
    assert penstock.values(topic, "--from-beginning", "--exit-at-end") == lines


def test_key_headers_and_time_of_a_message_arrive_as_they_were_given(
    penstock: Commands, topic: str
) -> None:
    penstock.run(
        "produce", topic, "--key", "k", "--value", "v", "--header", "a=1", "--header", "a=2",
        "--timestamp", "2024-02-29T12:00:00.123Z", "--partition", "0",
    )  # fmt: skip

    (message,) = penstock.read(topic, "--from-beginning", "-n", "1")

    assert message["key"] == "k"
    assert message["value"] == "v"
    assert message["headers"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]
    assert message["timestamp"] == "2024-02-29T12:00:00.123Z"


def test_bytes_files_and_tombstones_arrive_unchanged(
    penstock: Commands, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"\x00\xff\n\n")
    penstock.run("produce", topic, "--value-file", str(file), "--tombstone", "--key", "k")

    whole = penstock.run("consume", topic, "-o", "0", "-n", "1", "--format", "%v")
    (tombstone,) = penstock.read(topic, "--offset", "-1", "--exit-at-end")

    assert whole.stdout == b"\x00\xff\n\n"
    assert (tombstone["key"], tombstone["value"]) == ("k", None)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read_back(penstock: Commands, topic: str, codec: str) -> None:
    lines = ["same text again"] * 500
    penstock.run("produce", topic, "--compression", codec, stdin="\n".join(lines))

    assert penstock.values(topic, "--from-beginning", "-e") == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_messages_are_stored_with_every_kind_of_ack(
    penstock: Commands, topic: str, acks: str
) -> None:
    penstock.run("produce", topic, "--acks", acks, "--value", "x")

    assert penstock.values(topic, "--from-beginning", "-n", "1") == ["x"]


def test_a_key_always_leads_to_the_same_partition(penstock: Commands) -> None:
    name = f"t-{uuid4().hex[:12]}"
    penstock.run("topic", "create", name, "-p", "4")
    lines = [f"key{number % 7}:{number}" for number in range(70)]
    penstock.run("produce", name, "-K", ":", stdin="\n".join(lines))

    messages = penstock.read(name, "--from-beginning", "--exit-at-end")

    homes = {(message["key"], message["partition"]) for message in messages}
    assert len(messages) == 70
    assert len(homes) == 7


def test_messages_without_a_key_are_spread_evenly(penstock: Commands) -> None:
    name = f"t-{uuid4().hex[:12]}"
    penstock.run("topic", "create", name, "-p", "6")

    published = penstock.json("produce", name, stdin="\n".join(map(str, range(30_000))))

    counts = [each["count"] for each in published["partitions"]]
    assert len(counts) == 6
    assert all(4_500 <= count <= 5_500 for count in counts)


def test_lines_before_a_bad_one_are_published_and_counted(penstock: Commands, topic: str) -> None:
    result = penstock.run("produce", topic, "-K", ":", "--json", stdin="a:1\nb:2\nc\n", code=1)

    assert json.loads(result.stdout)["count"] == 2
    assert "line 3 of standard input has no key separator" in result.stderr.decode()


def test_a_message_above_the_limit_of_its_topic_is_refused_with_its_size(
    penstock: Commands, topic: str
) -> None:
    penstock.run("topic", "alter", topic, "--set", "max.message.bytes=1000")

    result = penstock.run("produce", topic, "--json", stdin="x" * 5_000, code=1)

    assert json.loads(result.stderr.splitlines()[-1])["error"]["type"] == "BatchTooLarge"
    assert json.loads(result.stdout)["count"] == 0


def test_a_window_of_time_is_read_from_its_first_to_before_its_last_moment(
    penstock: Commands, hourly: str
) -> None:
    window = ("--from-time", "2024-01-01T01:00:00Z", "--to-time", "2024-01-01T03:00:00Z")

    assert penstock.values(hourly, *window) == ["1", "2"]
    assert penstock.values(hourly, "--from-beginning", "--to-time", "-1h") == list("01234")
    assert penstock.values(hourly, "--from-time", "-1h", "--exit-at-end") == []
    assert penstock.values(hourly, "--from-time", "0", "--to-time", str(NEW_YEAR_MS)) == []


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        ("10:30", "12:30", ["12", "11"]),
        ("09:30", "11:30", ["10", "11"]),
        ("09:00", "10:00", ["9"]),
        ("13:00", "23:00", ["13"]),
    ],
)
def test_a_window_is_exact_when_times_are_out_of_order(
    penstock: Commands, shuffled: str, begin: str, end: str, expected: list[str]
) -> None:
    window = ("--from-time", f"2024-01-01T{begin}:00Z", "--to-time", f"2024-01-01T{end}:00Z")

    assert penstock.values(shuffled, *window) == expected


def test_an_open_window_is_exact_when_times_are_out_of_order(
    penstock: Commands, shuffled: str
) -> None:
    later = penstock.values(shuffled, "--from-time", "2024-01-01T10:30:00Z", "--exit-at-end")
    earlier = penstock.values(shuffled, "--from-beginning", "--to-time", "2024-01-01T10:30:00Z")

    assert later == ["12", "11", "13"]
    assert earlier == ["10", "9"]


def test_a_window_that_lasts_ends_with_its_time_and_not_with_a_later_message(
    penstock: Commands, topic: str
) -> None:
    penstock.run("produce", topic, "--value", "later", "--timestamp", "2124-01-01T00:00:00Z")
    penstock.run("produce", topic, "--value", "now")
    end_ms = int(time.time() * 1000) + 5_000

    assert penstock.values(topic, "--from-beginning", "--to-time", str(end_ms)) == ["now"]


def test_a_window_of_a_topic_that_dates_its_messages_ends_at_an_offset(
    penstock: Commands, topic: str
) -> None:
    penstock.run("topic", "alter", topic, "--set", "message.timestamp.type=LogAppendTime")
    penstock.run("produce", topic, stdin="a\nb")
    times_ms = [each["timestamp_ms"] for each in penstock.read(topic, "--from-beginning", "-e")]
    penstock.run("produce", topic, "--value", "c")

    window = ("--from-time", str(times_ms[0]), "--to-time", str(times_ms[1] + 1))

    assert penstock.values(topic, *window) == ["a", "b"]


def test_a_group_stops_before_the_first_later_message(
    penstock: Commands, shuffled: str, group: str
) -> None:
    joined = ("--group", group, "--from-beginning")

    assert penstock.values(shuffled, *joined, "--to-time", "2024-01-01T11:30:00Z") == ["10"]
    assert penstock.values(shuffled, *joined, "-e") == ["12", "11", "9", "13"]


def test_reading_starts_where_it_is_told_and_stops_after_the_count(
    penstock: Commands, topic: str
) -> None:
    penstock.run("produce", topic, stdin="\n".join(map(str, range(10))))

    assert penstock.values(topic, "--offset", "4", "-n", "2") == ["4", "5"]
    assert penstock.values(topic, "--offset", "-2", "--exit-at-end") == ["8", "9"]
    assert penstock.values(topic, "--offset", "end", "--exit-at-end") == []
    refused = penstock.run("consume", topic, "--offset", "11", code=1)
    assert "holds 0 up to 10" in refused.stderr.decode()


def test_a_partition_that_does_not_exist_is_told(penstock: Commands, topic: str) -> None:
    result = penstock.run("consume", topic, "--partition", "7", code=1)

    assert f"partition is 7, topic {topic} has 0..0" in result.stderr.decode()


def test_a_message_that_is_refused_without_a_reason_is_told_what_may_be_wrong(
    penstock: Commands, topic: str
) -> None:
    nameless = penstock.run("produce", "ünï", "-v", "x", code=1).stderr.decode()
    senseless = penstock.run("produce", topic, "-v", "x", "-H", "penstock-priority=99", code=1)

    assert nameless.startswith("penstock: publish to ünï: ")
    assert "A-Z, a-z, 0-9" in nameless
    assert "headers that begin with penstock-" in senseless.stderr.decode()


def test_messages_are_written_in_the_format_asked_for(penstock: Commands, topic: str) -> None:
    penstock.run("produce", topic, "-k", "K", "-v", "V", "--timestamp", "5", "-H", "h=1")

    args = ("consume", topic, "-o", "beginning", "-e", "--format", r"%t %p %o %k %v %T %h\n")

    assert penstock.run(*args).stdout.decode() == f"{topic} 0 0 K V 5 h=1\n"


def test_a_reader_that_goes_away_ends_consume_without_a_word(
    penstock: Commands, topic: str
) -> None:
    penstock.run("produce", topic, stdin="\n".join(["x" * 100] * 5_000))

    process = penstock.start("consume", topic, "--from-beginning", "--exit-at-end")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.stderr.read() == b""
    assert process.wait(RUN_WAIT_S) == 0


def test_a_consumer_that_loses_its_broker_says_so_and_goes_on_when_it_returns(
    fresh_node: NodeProcess, fresh_penstock: Commands
) -> None:
    fresh_penstock.run("produce", "t", "--value", "before")
    process = fresh_penstock.start("consume", "t", "--from-beginning", "-n", "2")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"before\n"

    fresh_node.kill()
    complaint = process.stderr.readline().decode()
    fresh_node.start()
    fresh_penstock.run("produce", "t", "--value", "after")

    assert "waiting for a broker to return" in complaint
    assert process.communicate(timeout=RUN_WAIT_S)[0] == b"after\n"
    assert process.returncode == 0


# Groups.


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_goes_on_where_it_stopped(
    penstock: Commands, topic: str, group: str, protocol: str
) -> None:
    penstock.run("produce", topic, stdin="\n".join(map(str, range(10))))
    joined = ("--group", group, "--group-protocol", protocol, "--from-beginning")

    assert penstock.values(topic, *joined, "-n", "4") == ["0", "1", "2", "3"]
    assert penstock.values(topic, *joined, "--exit-at-end") == ["4", "5", "6", "7", "8", "9"]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_consumer_commits_what_it_wrote_out(
    penstock: Commands, topic: str, group: str, ending: signal.Signals
) -> None:
    penstock.run("produce", topic, stdin="a\nb\nc")
    process = penstock.start("consume", topic, "--group", group, "--from-beginning")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == [b"a\n", b"b\n", b"c\n"]

    process.send_signal(ending)
    _output, complaint = process.communicate(timeout=RUN_WAIT_S)

    assert (process.returncode, complaint) == (130, b"")
    (progress,) = penstock.json("group", "describe", group)["progress"]
    assert (progress["committed"], progress["lag"]) == (3, 0)


def test_a_group_shows_its_members_and_cannot_be_moved_or_deleted_under_them(
    penstock: Commands, topic: str, group: str
) -> None:
    penstock.run("produce", topic, stdin="a\nb")
    process = penstock.start("consume", topic, "--group", group, "--from-beginning")
    assert process.stdout is not None
    assert process.stdout.readline() == b"a\n"

    described = penstock.json("group", "describe", group)
    moved = penstock.run("group", "reset", group, "--to-earliest", "--json", code=1)
    deleted = penstock.run("group", "delete", group, "--json", code=1)

    (member,) = described["members"]
    assert member["partitions"] == [{"topic": topic, "partition": 0}]
    assert group in [each["name"] for each in penstock.json("group", "list")]
    assert json.loads(moved.stderr)["error"]["type"] == "GroupNotEmpty"
    assert json.loads(deleted.stderr)["error"]["type"] == "GroupNotEmpty"


def test_a_dry_run_shows_the_moves_and_makes_none(
    penstock: Commands, topic: str, group: str
) -> None:
    penstock.run("produce", topic, stdin="\n".join(map(str, range(10))))
    penstock.run("consume", topic, "-g", group, "--from-beginning", "-n", "4")

    planned = penstock.json("group", "reset", group, "--shift-by", "-1", "--dry-run")
    move = {"topic": topic, "partition": 0, "before": 4, "after": 3}
    assert planned == {"group": group, "dry_run": True, "moves": [move]}
    assert penstock.json("group", "describe", group)["progress"][0]["committed"] == 4

    done = penstock.json("group", "reset", group, "--shift-by", "-1")
    assert done == {"group": group, "dry_run": False, "moves": [move]}
    described = penstock.json("group", "describe", group)["progress"][0]
    assert (described["committed"], described["end"], described["lag"]) == (3, 10, 7)


def test_a_group_is_moved_to_ends_offsets_and_times(
    penstock: Commands, hourly: str, group: str
) -> None:
    def after(*args: str) -> int:
        moves = penstock.json("group", "reset", group, "--topic", f"{hourly}:0", *args)["moves"]
        return int(moves[0]["after"])

    assert after("--to-latest") == 5
    assert after("--to-earliest") == 0
    assert after("--to-offset", "99") == 5
    assert after("--to-offset", "2") == 2
    assert after("--to-time", "2024-01-01T02:30:00Z") == 3
    assert penstock.values(hourly, "-g", group, "--exit-at-end") == ["3", "4"]


def test_share_groups_are_listed_beside_consumer_groups(
    penstock: Commands, topic: str, group: str, node: NodeProcess
) -> None:
    share_group = f"s-{uuid4().hex[:12]}"
    penstock.run("group", "reset", group, "--to-latest", "--topic", topic)
    consumer = ShareConsumer({"bootstrap.servers": node.bootstrap, "group.id": share_group})
    consumer.subscribe([topic])
    wait_until(
        lambda: share_group in [each["name"] for each in penstock.json("group", "list")],
        "the share group is listed",
    )
    consumer.close()

    listed = {each["name"]: each for each in penstock.json("group", "list")}
    shown = penstock.run("group", "list").stdout.decode()

    assert (listed[share_group]["kind"], listed[share_group]["state"]) == ("share", "unknown")
    assert (listed[group]["kind"], listed[group]["state"]) == ("consumer", "empty")
    rows = [line.split() for line in shown.splitlines()]
    assert [share_group, "share", "unknown", "share"] in rows
    for asked in (("describe",), ("reset", "--to-earliest", "--topic", topic, "--dry-run")):
        refused = penstock.run("group", asked[0], share_group, *asked[1:], code=1)
        assert f"/v1/topics/TOPIC/groups/{share_group}" in refused.stderr.decode()


def test_a_group_lags_by_the_age_of_the_first_message_that_it_has_yet_to_read(
    penstock: Commands, group: str
) -> None:
    name = f"t-{uuid4().hex[:12]}"
    penstock.run("topic", "create", name, "-p", "3")
    for partition, hours in ((0, 3), (0, 5), (1, 1)):
        penstock.run("produce", name, "-v", "x", "-p", str(partition), "--timestamp", f"-{hours}h")

    def lags_h() -> list[float]:
        described = penstock.json("group", "describe", group)
        lags_s = [each["lag_s"] for each in described["progress"]]
        assert described["lag_s"] == max(lags_s)
        return [round(each / 3600, 1) for each in lags_s]

    penstock.run("group", "reset", group, "--to-earliest", "--topic", name)
    assert lags_h() == [3, 1, 0]
    assert "lag s" in penstock.run("group", "describe", group).stdout.decode()
    penstock.run("group", "reset", group, "--shift-by", "1")
    assert lags_h() == [5, 0, 0]
    penstock.run("group", "reset", group, "--to-latest")
    assert lags_h() == [0, 0, 0]


def test_the_lag_of_a_group_is_known_when_retention_removed_what_it_has_yet_to_read(
    penstock: Commands, connection: Connection, hourly: str, group: str
) -> None:
    penstock.run("group", "reset", group, "--to-earliest", "--topic", hourly)
    remove_records(connection, hourly, before=2)

    (progress,) = penstock.json("group", "describe", group)["progress"]

    begin_s = (NEW_YEAR_MS + 2 * HOUR_MS) / 1000
    assert progress["lag_s"] == pytest.approx(time.time() - begin_s, abs=RUN_WAIT_S)


def test_a_group_is_forgotten_when_it_is_deleted(
    penstock: Commands, topic: str, group: str
) -> None:
    penstock.run("group", "reset", group, "--to-latest", "--topic", topic)
    penstock.run("group", "delete", group)

    assert group not in [each["name"] for each in penstock.json("group", "list")]
    for args in (("describe", group), ("delete", group), ("reset", group, "--to-latest")):
        result = penstock.run("group", *args, "--json", code=1)
        assert json.loads(result.stderr)["error"]["type"] == "GroupNotFound"


# Files.


def test_the_files_of_a_running_node_are_verified_and_shown(
    penstock: Commands, topic: str, node: NodeProcess
) -> None:
    penstock.run("produce", topic, "-k", "K", "-v", "needle")
    (log,) = [each for each in node.data_dir.rglob("*.log") if topic in str(each)]

    report = penstock.json("log", "verify", str(log.parent))
    lines = penstock.run("log", "dump", str(log)).stdout.decode()

    assert report["problems"] == 0
    assert report["partitions"][0]["records"] == 1
    assert "needle" in lines


def test_damage_in_a_file_is_found_and_ends_with_1(
    penstock: Commands, topic: str, node: NodeProcess, tmp_path: Path
) -> None:
    penstock.run("produce", topic, "-k", "K", "-v", "needle")
    (log,) = [each for each in node.data_dir.rglob("*.log") if topic in str(each)]
    copy = tmp_path / "copy"
    shutil.copytree(log.parent, copy)
    data = (copy / log.name).read_bytes()
    (copy / log.name).write_bytes(data.replace(b"needle", b"noodle"))

    result = penstock.run("log", "verify", str(copy), code=1)

    assert log.name in result.stdout.decode()


def test_a_key_has_the_same_partition_as_over_http(penstock: Commands, node: NodeProcess) -> None:
    topic = f"cli-{uuid4().hex[:8]}"
    keys = [f"key-{number}" for number in range(30)]
    with Client(node.http_url) as client:
        client.create_topic(topic, partitions=6)
        client.publish_batch(topic, [Publication(value="http", key=key) for key in keys])

    lines = "".join(f"{key}:cli\n" for key in keys)
    penstock.run("produce", topic, "--key-separator", ":", stdin=lines)

    places: dict[str, set[int]] = {}
    for message in penstock.read(topic, "--from-beginning", "-n", "60"):
        places.setdefault(message["key"], set()).add(message["partition"])
    assert places.keys() == set(keys)
    assert all(len(partitions) == 1 for partitions in places.values())


def test_commands_ask_the_cluster_of_a_context(node: NodeProcess, tmp_path: Path) -> None:
    commands = Commands("")
    commands.environ["XDG_CONFIG_HOME"] = str(tmp_path)
    topic = f"named-{uuid4().hex[:8]}"
    urls = f"{node.http_url},http://127.0.0.1:1"

    commands.run("context", "set", "here", "-b", node.bootstrap, "-u", urls, "--use")
    commands.run("context", "set", "http", "--url", urls)
    commands.run("context", "set", "nowhere", "--bootstrap", "127.0.0.1:1")
    commands.run("topic", "create", topic)
    commands.run("produce", topic, "--context", "here", stdin="one\n")
    received = commands.run("--context", "http", "consume", topic, "--queue", "g", "-n", "1")
    status = commands.json("cluster", "status")
    commands.run("topic", "list", "--context", "nowhere", code=3)

    assert received.stdout == b"one\n"
    assert status["nodes"]

"""The programs in examples/ do what they say."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka_clients import new_topic, publish, unique, wait_until
from tests.processes import NodeProcess

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as running:
        yield running


def start(name: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_is_sent_is_received(node: NodeProcess) -> None:
    out, err = start("send_and_receive.py", node.bootstrap).communicate(timeout=300)

    assert out.splitlines()[0] == "published 10 orders", err
    assert len([line for line in out.splitlines() if line.startswith("received")]) == 10


def test_a_member_of_a_group_goes_on_where_the_one_before_stopped(
    node: NodeProcess, tmp_path: Path
) -> None:
    topic, group = new_topic(node), unique("group")
    publish(node, topic, [b"a", b"b"])

    assert work(node, topic, group, tmp_path, last="b") == ["0:  a", "1:  b"]

    publish(node, topic, [b"c"])

    assert work(node, topic, group, tmp_path, last="c") == ["2:  c"]


def work(node: NodeProcess, topic: str, group: str, directory: Path, *, last: str) -> list[str]:
    """Run a member until it has done the last message, and return what it did."""
    file = directory / f"done-{last}"
    with file.open("w") as out:
        command = [sys.executable, str(EXAMPLES / "group_consumer.py")]
        member = subprocess.Popen([*command, topic, group, node.bootstrap], stdout=out, text=True)
    wait_until(lambda: file.read_text().endswith(f" {last}\n"), f"{last} is done")
    member.send_signal(signal.SIGTERM)
    assert member.wait(120) == 0
    return [line.removeprefix("partition 0 offset ") for line in file.read_text().splitlines()]


@pytest.mark.crash
def test_a_stream_goes_on_without_its_leader_and_its_count_is_exact() -> None:
    out, err = start("failover.py").communicate(timeout=300)

    assert "which leads, is killed." in out, err
    assert out.splitlines()[-1] == "Every record is there, once, in order."


def test_every_example_is_run() -> None:
    spark_tests = Path(__file__).parents[1] / "spark" / "test_spark_examples.py"
    source = Path(__file__).read_text() + spark_tests.read_text()

    assert [path.name for path in EXAMPLES.glob("*.py") if path.name not in source] == []

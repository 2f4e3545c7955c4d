"""kcat against a running node, where it is installed."""

import json
import shutil
import subprocess

import pytest

from tests.kafka_clients import new_topic, unique
from tests.processes import NodeProcess

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")

LINES = [f"key-{number % 3}:value {number}" for number in range(100)]
RUN_WAIT_S = 120


def kcat(node: NodeProcess, *args: str, lines: list[str] | None = None) -> str:
    """Run kcat to its end and return what it prints."""
    result = subprocess.run(
        ["kcat", "-b", node.bootstrap, *args],
        input="\n".join(lines or []).encode(),
        capture_output=True,
        timeout=RUN_WAIT_S,
    )
    assert result.returncode == 0, result.stderr.decode()[-2000:]
    return result.stdout.decode()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_lines_are_published_and_read_back(node: NodeProcess, codec: str) -> None:
    topic = new_topic(node)

    kcat(node, "-P", "-t", topic, "-K:", "-z", codec, lines=LINES)

    output = kcat(node, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
    assert output.splitlines() == LINES


def test_topics_and_brokers_are_listed(node: NodeProcess) -> None:
    topic = new_topic(node, 3)

    listed = json.loads(kcat(node, "-L", "-J"))

    assert [broker["name"] for broker in listed["brokers"]] == [node.bootstrap]
    (found,) = [each for each in listed["topics"] if each["topic"] == topic]
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1, 2]


def test_an_offset_is_found_by_time(node: NodeProcess) -> None:
    topic = new_topic(node)
    kcat(node, "-P", "-t", topic, lines=["a", "b"])

    assert kcat(node, "-Q", "-t", f"{topic}:0:0").split() == [topic, "[0]", "offset", "0"]


def test_a_group_goes_on_where_it_stopped(node: NodeProcess) -> None:
    topic, group = new_topic(node), unique("group")
    kcat(node, "-P", "-t", topic, "-K:", lines=LINES)
    member = ("-G", group, "-q", "-f", "%s\n", "-X", "auto.offset.reset=earliest")

    first = kcat(node, *member, "-c", "40", topic).splitlines()
    second = kcat(node, *member, "-e", topic).splitlines()

    assert [*first, *second] == [line.partition(":")[2] for line in LINES]

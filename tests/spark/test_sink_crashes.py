"""The sink writes exactly once although its driver and its broker are killed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.readwriter import DataFrameReader

from tests.kafka_clients import new_topic, publish
from tests.processes import NodeProcess

RECORDS = 3_000
DEADLINE_S = 400
DRIVER = Path(__file__).parent / "sink_driver.py"


@pytest.mark.usefixtures("java")
def test_a_stream_writes_once_although_its_driver_and_its_broker_are_killed(
    node: NodeProcess, reading: Callable[..., DataFrameReader], tmp_path: Path
) -> None:
    source, target = new_topic(node), new_topic(node, partitions=3)
    publish(node, source, [b"%d" % number for number in range(RECORDS)])

    def start() -> "subprocess.Popen[bytes]":
        command = [sys.executable, str(DRIVER), node.bootstrap, node.http_url, source, target]
        return subprocess.Popen([*command, str(tmp_path / "checkpoint")], start_new_session=True)

    driver = start()
    # Some epochs are published, and another one is staged or being committed.
    _wait(lambda: _published(node, target) > 0 and _staged(node, target) > 0, "an epoch is staged")
    _kill(driver)
    before = _published(node, target)
    driver = start()
    _wait(lambda: _published(node, target) > before, "the query goes on")
    node.kill()
    node.start()
    assert driver.wait(DEADLINE_S) == 0

    rows = reading(subscribe=target).load().select("value").collect()
    written = [bytes(row.value).decode().split(".") for row in rows]
    assert sorted(int(number) for number, _ in written) == list(range(RECORDS))
    # Epochs have 500 records, and each comes from one run of the query.
    for first in range(0, RECORDS, 500):
        epoch = {run for number, run in written if first <= int(number) < first + 500}
        assert len(epoch) == 1


def _kill(driver: "subprocess.Popen[bytes]") -> None:
    os.killpg(driver.pid, 9)
    driver.wait()


def _wait(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"it never happened that {what}"
        time.sleep(0.01)


def _staged(node: NodeProcess, topic: str) -> int:
    return len(json.loads(node.get(f"/v1/topics/{topic}/writes")[1])["runs"])


def _published(node: NodeProcess, topic: str) -> int:
    partitions = json.loads(node.get(f"/v1/topics/{topic}")[1])["partitions"]
    return sum(each["end"] for each in partitions)

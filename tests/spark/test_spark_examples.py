"""The Spark programs in examples/ do what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka_clients import DEADLINE_S, new_producer, new_topic
from tests.processes import NodeProcess

EXAMPLES = Path(__file__).parents[2] / "examples"
FAST_JAVA = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.mark.usefixtures("java")
def test_a_topic_is_asked_in_sql(node: NodeProcess) -> None:
    topic = new_topic(node)
    producer = new_producer(node)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3")):
        producer.produce(topic, value, key)
    assert producer.flush(DEADLINE_S) == 0

    command = [sys.executable, str(EXAMPLES / "spark_views.py"), topic, node.bootstrap]
    done = subprocess.run(command, env=FAST_JAVA, capture_output=True, text=True, timeout=240)

    lines = done.stdout.splitlines()
    assert lines == ["partition 0: 3 records, 0 to 2", "a: 3", "b: 2"], done.stderr[-3000:]

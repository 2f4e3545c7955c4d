"""A node inside a test, and the fixtures that bring it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client import AsyncClient, Client
from penstock.testing import AsyncEmbeddedBroker, EmbeddedBroker

USERS_TEST = """
from penstock.client import Client


def test_orders_are_received(penstock_node, fresh_penstock_node):
    for broker in (penstock_node, fresh_penstock_node):
        with Client(broker.url) as client:
            client.publish("orders", "tea")
            (message,) = client.receive("orders", "billing", wait_s=5)
            assert message.value == b"tea"
"""


def test_a_node_on_a_thread_serves_and_leaves_nothing_behind() -> None:
    with EmbeddedBroker() as broker, Client(broker.url) as client:
        data_dir = broker.data_dir
        client.publish("orders", "tea")
        assert [each.name for each in client.topics()] == ["orders"]
        assert data_dir.is_dir()

    assert not data_dir.exists()


def test_data_in_a_directory_of_ones_own_stays(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, Client(broker.url) as client:
        client.publish("orders", "tea")

    with EmbeddedBroker(tmp_path) as broker, Client(broker.url) as client:
        assert client.topic("orders").partitions[0].end == 1


def test_a_node_runs_on_the_loop_of_the_caller() -> None:
    async def scenario() -> int | None:
        async with AsyncEmbeddedBroker() as broker, AsyncClient(broker.url) as client:
            return (await client.publish("orders", "tea")).offset

    assert asyncio.run(scenario()) == 0


def test_pytest_finds_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(USERS_TEST)
    # Named here, so that it does not matter whether the package was installed with its entry point.
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "penstock.pytest_plugin", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environ,
        cwd=tmp_path,
    )

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_node_that_runs_is_not_started_again() -> None:
    with EmbeddedBroker() as broker:
        url = broker.url
        with pytest.raises(AssertionError, match="runs already"):
            broker.start()
        assert broker.url == url

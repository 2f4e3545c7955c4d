"""Commands about a group while its coordinator changes."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.groups import Groups
from penstock.client import Client
from penstock.errors import NotCoordinator
from penstock.testing import EmbeddedBroker


def penstock(broker: EmbeddedBroker, *args: str) -> Any:
    """Run a command in a process of its own and return what it prints for programs."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *args, "--bootstrap", broker.bootstrap, "--json"],
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, (done.returncode, done.stderr.decode())
    return json.loads(done.stdout)


def refuse_once(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Let the node be the wrong one whenever it is asked something for the first time."""
    refused: set[str] = set()
    answer = Groups.ask_currently

    async def ask(groups: Groups, group_id: str, command: Callable[[int], Any]) -> Any:
        kind = type(command(0)).__name__
        if kind not in refused:
            refused.add(kind)
            raise NotCoordinator("another node leads the shard of this group")
        return await answer(groups, group_id, command)

    monkeypatch.setattr(Groups, "ask_currently", ask)
    return refused


def test_a_group_is_described_although_its_coordinator_changes_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with EmbeddedBroker() as broker, Client(broker.url) as client:
        for number in range(5):
            client.publish("orders", number)
        penstock(broker, "group", "reset", "readers", "--topic", "orders", "--to-offset", "3")
        refused = refuse_once(monkeypatch)

        described = penstock(broker, "group", "describe", "readers")

    assert "FetchOffsets" in refused
    (progress,) = described["progress"]
    assert (progress["committed"], progress["end"]) == (3, 5)

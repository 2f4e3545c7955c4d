"""A running node for tests that use stock clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import NodeProcess


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node of its own for each test file, with timeouts short enough for tests."""
    with NodeProcess(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def fresh_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node of its own for one test, which may restart or kill it."""
    with NodeProcess(tmp_path) as running:
        yield running

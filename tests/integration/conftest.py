"""Nodes that tests start, stop, kill and start again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.processes import NodeProcess

StartNode = Callable[..., NodeProcess]


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """Start a node with the given flags; whatever still runs at the end is killed."""
    with ExitStack() as nodes:

        def start(*flags: str, directory: Path = tmp_path) -> NodeProcess:
            return nodes.enter_context(NodeProcess(directory, *flags))

        yield start

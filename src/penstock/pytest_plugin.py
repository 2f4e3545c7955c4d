"""Fixtures for the tests of programs that use Penstock; pytest finds them by itself.

Pytest loads this for every project of an environment that Penstock is installed in, so it stands
outside of `penstock.testing`: the rooms of the server load with the first node.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing import EmbeddedBroker


@pytest.fixture(scope="session")
def penstock_node() -> "Iterator[EmbeddedBroker]":
    """A running node for all tests of the session; topics of their own keep them apart."""
    from penstock.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def fresh_penstock_node() -> "Iterator[EmbeddedBroker]":
    """A running node with empty files for one test."""
    from penstock.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker

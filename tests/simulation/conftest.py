"""Histories are played quickly and without a word."""

import gc
import logging
from collections.abc import Iterator

import pytest

from tests.simulation.__main__ import prepare


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    thresholds = gc.get_threshold()
    prepare()
    yield
    gc.set_threshold(*thresholds)
    logging.disable(logging.NOTSET)

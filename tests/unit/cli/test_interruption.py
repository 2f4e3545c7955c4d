"""Ctrl-C and SIGTERM while reading."""

import os
import signal
from collections.abc import Iterator

import pytest

from penstock.cli.interruption import Interruption


@pytest.fixture(autouse=True)
def python_handles_interrupts() -> Iterator[None]:
    """Begin with Python's own handler, whatever a library has installed in this process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request_and_raises_nothing(number: signal.Signals) -> None:
    with Interruption() as interruption:
        os.kill(os.getpid(), number)

    assert interruption.is_requested


def test_a_second_signal_acts_as_it_would_without() -> None:
    def press_twice() -> None:
        with Interruption():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        press_twice()


def test_a_handler_that_a_library_installed_meanwhile_is_replaced() -> None:
    with Interruption() as interruption:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        interruption.hold()
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
        interruption.hold()

    assert interruption.is_requested
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_the_handlers_of_before_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)

    with Interruption() as interruption:
        assert signal.getsignal(signal.SIGTERM) != before

    assert signal.getsignal(signal.SIGTERM) == before
    assert not interruption.is_requested

"""When a batch of waiting messages goes out, and what it holds."""

import pytest

from penstock.client.buffers import BufferLimits, PublishBuffer
from penstock.client.publications import Publication
from penstock.errors import InvalidRequest

NOW = float("-inf")


def filled(limits: BufferLimits, *values: bytes) -> PublishBuffer[int]:
    buffer: PublishBuffer[int] = PublishBuffer(limits)
    for number, value in enumerate(values):
        buffer.add(Publication(value=value), number, now_s=100 + number)
    return buffer


def told(buffer: PublishBuffer[int]) -> list[int]:
    return [each.told for each in buffer.take()]


def test_nothing_is_due_while_nothing_waits() -> None:
    assert filled(BufferLimits()).due_s() is None


def test_the_first_message_waits_no_longer_than_the_limit() -> None:
    buffer = filled(BufferLimits(linger_s=0.5), b"a", b"b")

    assert buffer.due_s() == 100.5
    assert told(buffer) == [0, 1]
    assert buffer.due_s() is None


def test_a_full_batch_goes_out_at_once_and_the_rest_waits() -> None:
    buffer = filled(BufferLimits(batch_count_max=2, linger_s=5), b"a", b"b", b"c")

    assert buffer.due_s() == NOW
    assert told(buffer) == [0, 1]
    assert buffer.due_s() == 107


def test_a_batch_is_cut_by_bytes_but_never_empty() -> None:
    buffer = filled(BufferLimits(batch_bytes_max=2_000), b"x" * 1_500, b"y" * 1_500, b"z" * 9_000)

    assert buffer.due_s() == NOW
    assert [told(buffer), told(buffer), told(buffer)] == [[0], [1], [2]]


def test_a_flush_hurries_what_waits_and_not_what_comes_after() -> None:
    buffer = filled(BufferLimits(linger_s=5), b"a", b"b")
    buffer.hurry()
    assert buffer.due_s() == NOW

    assert told(buffer) == [0, 1]
    buffer.add(Publication(value=b"c"), 2, now_s=200)
    assert buffer.due_s() == 205


def test_a_buffer_has_room_up_to_its_limit() -> None:
    buffer = filled(BufferLimits(waiting_max=2), b"a")
    assert buffer.has_room

    buffer.add(Publication(value=b"b"), 1, now_s=0)
    assert not buffer.has_room


@pytest.mark.parametrize(
    "limits",
    [
        BufferLimits(batch_count_max=0),
        BufferLimits(batch_count_max=10_001),
        BufferLimits(waiting_max=0),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: BufferLimits) -> None:
    with pytest.raises(InvalidRequest, match="_max is "):
        PublishBuffer[int](limits)

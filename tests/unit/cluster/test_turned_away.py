"""Batches that were turned away: which ones are awaited, why, and for how long."""

import pytest

from penstock.cluster import turned_away as turned_away_module
from penstock.cluster.producers import ProducerState, after_batch
from penstock.cluster.turned_away import TurnedAway
from penstock.errors import DiskFull, NotLeader, PenstockError
from penstock.record import BatchHeader
from penstock.testing import SimClock
from tests.unit.cluster.workplaces import numbered_batch

FULL = DiskFull("the disk is full")
HANDED_OVER = NotLeader("another node takes over")
LAST_SEQUENCE = 2**31 - 1


def header(sequence: int, *, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return numbered_batch(sequence, b"v", epoch=epoch, producer_id=producer_id).header


def turned_away(*sequences: int, reason: PenstockError = FULL) -> TurnedAway:
    noted = TurnedAway(SimClock())
    for sequence in sequences:
        noted.note(header(sequence), reason, known=None)
    return noted


def known_after(sequence: int) -> ProducerState:
    return after_batch(None, header(sequence), 0)


def test_a_producer_without_refusals_may_begin_anywhere_and_waits_for_nothing() -> None:
    noted = turned_away()

    assert noted.reason_to_begin_with_another(header(4)) is None
    assert noted.reason_to_wait(header(5), 4) is None


def test_an_unknown_producer_begins_with_the_first_batch_that_was_turned_away() -> None:
    noted = turned_away(4, 5)

    assert noted.reason_to_begin_with_another(header(4)) is None
    assert noted.reason_to_begin_with_another(header(5)) is FULL
    assert noted.reason_to_begin_with_another(header(0, epoch=1)) is None


@pytest.mark.parametrize("sequences", [(4, 5, 6), (6, 5, 4), (5, 6, 4)])
def test_all_that_was_turned_away_is_awaited_whatever_came_first(
    sequences: tuple[int, ...],
) -> None:
    noted = turned_away(*sequences)

    awaited = [each for each in range(10) if noted.reason_to_wait(header(9), each)]

    assert awaited == [4, 5, 6]


def test_the_reason_is_that_of_the_first_in_line() -> None:
    noted = turned_away(4)
    noted.note(header(5), HANDED_OVER, known=None)
    assert noted.reason_to_wait(header(6), 5) is FULL

    noted.note(header(3), HANDED_OVER, known=None)
    assert noted.reason_to_wait(header(6), 5) is HANDED_OVER


def test_sequences_are_awaited_over_the_wrap() -> None:
    noted = turned_away(LAST_SEQUENCE, 0)

    assert noted.reason_to_wait(header(1), LAST_SEQUENCE) is FULL
    assert noted.reason_to_wait(header(2), 0) is FULL
    assert noted.reason_to_wait(header(2), 1) is None


def test_a_new_epoch_begins_afresh() -> None:
    noted = turned_away(4, 5)
    noted.note(header(0, epoch=1), FULL, known=None)

    assert noted.reason_to_wait(header(5, epoch=1), 4) is None
    assert noted.reason_to_wait(header(1, epoch=1), 0) is FULL


def test_refusals_that_have_all_come_back_are_not_extended() -> None:
    noted = turned_away(4, 5)

    noted.note(header(9), HANDED_OVER, known=known_after(5))

    assert noted.reason_to_wait(header(9), 5) is None
    assert noted.reason_to_wait(header(10), 9) is HANDED_OVER


def test_refusals_of_which_some_have_not_come_back_are_extended() -> None:
    noted = turned_away(4, 5)

    noted.note(header(6), HANDED_OVER, known=known_after(4))

    assert noted.reason_to_wait(header(6), 5) is FULL


def test_the_next_in_line_ends_the_waiting() -> None:
    noted = turned_away(4, 5)

    noted.accepted(7)

    assert noted.reason_to_wait(header(6), 5) is None


def test_a_gap_is_believed_when_it_stays() -> None:
    clock = SimClock()
    noted = TurnedAway(clock)

    assert noted.may_be_overtaken(header(6), 5)
    clock.advance(9_999)
    assert noted.may_be_overtaken(header(6), 5)
    clock.advance(1)
    assert not noted.may_be_overtaken(header(6), 5)


def test_another_gap_of_the_producer_is_believed_later() -> None:
    clock = SimClock()
    noted = TurnedAway(clock)
    noted.may_be_overtaken(header(6), 5)
    clock.advance(10_000)

    assert noted.may_be_overtaken(header(9), 8)
    assert noted.may_be_overtaken(header(6, epoch=1), 5)


def test_the_producers_that_are_remembered_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turned_away_module, "_PRODUCERS_MAX", 2)
    noted = TurnedAway(SimClock())
    for producer_id in (1, 2, 2, 3):
        noted.note(header(0, producer_id=producer_id), FULL, known=None)

    waiting = [each for each in (1, 2, 3) if noted.reason_to_wait(header(1, producer_id=each), 0)]

    assert waiting == [2, 3]

"""Sequence numbers: what is next, what is a repetition and what is refused."""

import pytest

from penstock.cluster.producers import BATCHES_KEPT, ProducerState, after_batch, check_sequence
from penstock.errors import DuplicateSequence, OutOfOrderSequence, ProducerFenced
from penstock.record import BatchHeader
from tests.unit.cluster.workplaces import numbered_batch

LAST_SEQUENCE = 2**31 - 1


def header(sequence: int, *, records: int = 1, epoch: int = 0) -> BatchHeader:
    return numbered_batch(sequence, *[b"v"] * records, epoch=epoch).header


def state_after(*sequences: int, epoch: int = 0) -> ProducerState:
    state: ProducerState | None = None
    for offset, sequence in enumerate(sequences):
        state = after_batch(state, header(sequence, epoch=epoch), offset)
    assert state is not None
    return state


@pytest.mark.parametrize("sequence", [0, 5, LAST_SEQUENCE])
def test_an_unknown_producer_may_begin_anywhere(sequence: int) -> None:
    assert check_sequence(None, header(sequence)) is None


def test_the_next_sequence_is_accepted() -> None:
    assert check_sequence(state_after(0, 1, 2), header(3)) is None


def test_sequences_wrap_after_the_largest() -> None:
    assert check_sequence(state_after(LAST_SEQUENCE), header(0)) is None
    wide = after_batch(None, header(LAST_SEQUENCE, records=3), 0)
    assert check_sequence(wide, header(2)) is None


@pytest.mark.parametrize("back", range(1, BATCHES_KEPT + 1))
def test_a_repeated_batch_is_answered_with_its_first_offset(back: int) -> None:
    state = state_after(*range(10))

    repeated = check_sequence(state, header(10 - back))

    assert repeated is not None
    assert repeated.offset == 10 - back


def test_what_is_older_than_the_batches_kept_is_told_apart_from_a_gap() -> None:
    state = state_after(*range(10))

    with pytest.raises(DuplicateSequence):
        check_sequence(state, header(1))
    with pytest.raises(OutOfOrderSequence):
        check_sequence(state, header(11))


def test_an_overlap_with_a_stored_batch_is_refused() -> None:
    state = after_batch(None, header(0, records=5), 0)

    with pytest.raises(OutOfOrderSequence):
        check_sequence(state, header(3, records=5))


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    state = state_after(0, 1, 2, epoch=3)

    with pytest.raises(ProducerFenced):
        check_sequence(state, header(3, epoch=2))
    with pytest.raises(OutOfOrderSequence):
        check_sequence(state, header(3, epoch=4))
    assert check_sequence(state, header(0, epoch=4)) is None


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    state = after_batch(state_after(0, 1, 2), header(0, epoch=1), 3)

    repeated = check_sequence(state, header(0, epoch=1))

    assert repeated is not None
    assert repeated.offset == 3

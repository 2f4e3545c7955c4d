"""The checker finds what it is there to find."""

import time
from array import array

from tests.chaos.checker import check, check_replicas
from tests.chaos.history import OFFSET_UNKNOWN, History, Place, encode_value, identity
from tests.chaos.workers import Ledger
from tests.chaos.writers import IDEMPOTENT, PLAIN_ALL, PLAIN_ONE

PLACE = Place("topic", 0)
IDEMPOTENT_WRITER, PLAIN_WRITER, CARELESS_WRITER = 0, 1, 2


def history_of(writer: int, acknowledged: list[int]) -> History:
    """A writer wrote records one after the other, and was told these offsets."""
    history = History(kinds={0: IDEMPOTENT, 1: PLAIN_ALL, 2: PLAIN_ONE})
    for number, offset in enumerate(acknowledged):
        history.acknowledge(history.begin(writer, PLACE, number), offset)
    return history


def final_of(writer: int, numbers: list[int]) -> dict[Place, array]:
    return {PLACE: array("q", [identity(writer, number) for number in numbers])}


def violations(history: History, final: dict[Place, array]) -> list[str]:
    return check(history, final).violations


def test_a_history_without_fault_passes() -> None:
    history = history_of(IDEMPOTENT_WRITER, [0, 1, 2])
    history.note_value(PLACE, 1, encode_value(0, 1, 20), "reader")
    history.note_end(PLACE, 3, 2)

    assert violations(history, final_of(IDEMPOTENT_WRITER, [0, 1, 2])) == []


def test_an_acknowledged_record_that_is_gone_is_found() -> None:
    history = history_of(PLAIN_WRITER, [0, 1, 2])

    assert "1.2 of topic-0 was acknowledged and is lost" in violations(
        history, final_of(PLAIN_WRITER, [0, 1])
    )


def test_a_loss_that_acks_1_allows_is_counted() -> None:
    found = check(history_of(CARELESS_WRITER, [0, 1, 2]), final_of(CARELESS_WRITER, [0, 1]))

    assert (found.violations, found.lost["plain acks=1"]) == ([], 1)


def test_a_record_at_another_offset_than_was_acknowledged_is_found() -> None:
    assert violations(history_of(PLAIN_WRITER, [0, 1]), final_of(PLAIN_WRITER, [1, 0]))


def test_a_second_copy_is_found_where_the_writer_is_idempotent_and_counted_elsewhere() -> None:
    doubled = check(history_of(PLAIN_WRITER, [0, 1]), final_of(PLAIN_WRITER, [0, 1, 0]))

    assert violations(history_of(IDEMPOTENT_WRITER, [0, 1]), final_of(0, [0, 1, 1])) != []
    assert (doubled.violations, doubled.duplicates["plain acks=all"]) == ([], 1)


def test_an_idempotent_writer_whose_records_changed_places_is_found() -> None:
    history = history_of(IDEMPOTENT_WRITER, [])
    history.begin(IDEMPOTENT_WRITER, PLACE, 0)
    history.begin(IDEMPOTENT_WRITER, PLACE, 1)

    assert "0.0 follows 0.1" in "".join(violations(history, final_of(0, [1, 0])))


def test_a_record_that_was_acknowledged_without_its_offset_must_be_there() -> None:
    history = history_of(IDEMPOTENT_WRITER, [0, OFFSET_UNKNOWN, 2])

    assert violations(history, final_of(0, [0, 1, 2])) == []
    assert "0.1 of topic-0 was acknowledged and is lost" in violations(history, final_of(0, [0, 2]))


def test_a_record_that_nobody_answered_is_found() -> None:
    history = history_of(IDEMPOTENT_WRITER, [0])
    history.begin(IDEMPOTENT_WRITER, PLACE, 1)

    assert "1 records of writer 0" in violations(history, final_of(0, [0]))[0]


def test_a_record_that_comes_before_one_that_was_acknowledged_earlier_is_found() -> None:
    history = history_of(PLAIN_WRITER, [5, 3])

    assert "although 5 was acknowledged before" in history.violations[0]


def test_an_offset_with_two_values_is_found() -> None:
    history = history_of(IDEMPOTENT_WRITER, [])
    history.note_value(PLACE, 0, encode_value(0, 1, 20), "reader")
    history.note_value(PLACE, 0, encode_value(0, 2, 20), "reader")

    assert "showed 0.1 and then 0.2" in history.violations[0]


def test_a_value_that_was_read_and_is_not_there_any_more_is_found() -> None:
    history = history_of(IDEMPOTENT_WRITER, [])
    history.note_value(PLACE, 0, encode_value(0, 1, 20), "reader")
    history.note_value(PLACE, 3, encode_value(0, 3, 20), "reader")

    assert len(violations(history, final_of(0, [0, 1]))) == 2


def test_a_high_watermark_that_went_back_is_found() -> None:
    history = history_of(IDEMPOTENT_WRITER, [])
    history.note_end(PLACE, 10, 0)
    history.note_end(PLACE, 8, known_before=10)

    assert "went from 10 to 8" in history.violations[0]
    assert "was 10 and is 1" in violations(history, final_of(0, [0]))[-1]


def test_a_committed_offset_that_went_back_is_found() -> None:
    history = history_of(IDEMPOTENT_WRITER, [])
    history.note_commit("group", PLACE, 7)
    history.note_committed("group", PLACE, 6, known_before=7)

    assert "had committed 7 of topic-0 and then 6" in history.violations[0]


def test_an_end_below_what_was_acknowledged_or_read_is_found() -> None:
    history = history_of(PLAIN_WRITER, [0, 1, 2])
    acknowledged = history.end_of(PLACE)
    history.note_value(PLACE, 7, encode_value(0, 7, 20), "reader")

    assert (acknowledged, history.end_of(PLACE)) == (3, 8)


def test_a_message_that_comes_back_after_its_ack_is_found() -> None:
    history = history_of(PLAIN_WRITER, [0])
    ledger = Ledger(history)
    asked_before_s = time.monotonic()
    ledger.note_settled(PLACE, 0)

    ledger.note_delivered(PLACE, 0, asked_before_s)
    assert history.violations == []
    ledger.note_delivered(PLACE, 0, time.monotonic())
    assert "offset 0 of topic-0 was settled and came back" in history.violations


def test_a_message_that_no_worker_ever_acked_is_found() -> None:
    ledger = Ledger(history_of(PLAIN_WRITER, [0, 1, 2]))
    ledger.note_settled(PLACE, 0)
    ledger.note_sent(PLACE, 1)

    assert ledger.open_below(PLACE, 3) == [2]


def test_replicas_that_differ_are_found() -> None:
    assert list(check_replicas(PLACE, {1: b"same", 2: b"same", 3: b"same"})) == []
    assert len(list(check_replicas(PLACE, {1: b"same", 2: b"same", 3: b"other"}))) == 1

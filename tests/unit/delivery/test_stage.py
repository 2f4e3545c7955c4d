"""The stage against a plain list of messages with their times."""

from array import array
from random import Random

import pytest

from penstock.delivery import Stage, stage, stage_number
from penstock.delivery.stage_events import parse_stage_id, stage_id
from penstock.errors import InvalidRequest, MessageNotFound


def dues(*times: int) -> "array[int]":
    return array("q", times)


def numbers_of(found: list[stage.Waiting]) -> list[int]:
    return [waiting.number for waiting in found]


def test_messages_are_due_by_time_and_then_in_the_order_they_came() -> None:
    staged = Stage()
    staged.add(5, dues(30, 10, 20))
    staged.add(6, dues(10, 40))

    assert staged.next_due_ms == 10
    assert staged.due(9, count_max=10) == []
    found = staged.due(30, count_max=10)
    assert [waiting.due_ms for waiting in found] == [10, 10, 20, 30]
    assert numbers_of(found) == [stage_number(*pair) for pair in [(5, 1), (6, 0), (5, 2), (5, 0)]]
    assert numbers_of(staged.due(30, count_max=1)) == [stage_number(5, 1)]


def test_a_cancelled_first_message_does_not_keep_the_clock_busy() -> None:
    staged = Stage()
    staged.add(1, dues(10, 20))
    staged.due(5, count_max=1)
    staged.due(10, count_max=1)

    assert staged.cancel([stage_number(1, 0), stage_number(9, 9)]) == [True, False]
    assert staged.due(15, count_max=9) == []
    assert staged.next_due_ms == 20


def test_a_moved_message_keeps_its_name_and_its_bytes() -> None:
    staged = Stage()
    staged.add(1, dues(10, 20))
    first = stage_number(1, 0)

    assert staged.move([first, 12345], 30) == [True, False]
    assert [(each.number, each.where) for each in staged.due(99, count_max=9)] == [
        (stage_number(1, 1), stage_number(1, 1)),
        (first, first),
    ]
    assert staged.find(first) == stage.Waiting(30, first, first)


def test_bytes_that_move_release_the_entry_that_held_them() -> None:
    staged = Stage()
    staged.add(3, dues(10, 20))
    staged.add(8, dues(15))
    assert staged.first_index == 3

    old = staged.below(8, count_max=10)
    staged.restage(12, numbers_of(old))

    assert staged.first_index == 8
    assert numbers_of(staged.due(99, count_max=9)) == [
        stage_number(3, 0),
        stage_number(8, 0),
        stage_number(3, 1),
    ]
    found = staged.find(stage_number(3, 1))
    assert found is not None
    assert found.where == stage_number(12, 1)


@pytest.mark.parametrize(
    "text", ["", "0-5", "0-s5", "a-s1-2", "0-s1-x", "0-s-1", "-s1-1", "0-s1-1-1"]
)
def test_a_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_stage_id(text)


def test_an_id_beyond_all_numbers_is_that_of_no_message() -> None:
    last = stage_id(7, 2**63 - 1)

    assert parse_stage_id(last) == (7, 2**63 - 1)
    with pytest.raises(MessageNotFound):
        parse_stage_id(f"7-s{1 << 43}-0")


def test_an_id_names_partition_entry_and_place() -> None:
    assert parse_stage_id(stage_id(7, stage_number(123, 45))) == (7, stage_number(123, 45))


@pytest.mark.parametrize("seed", range(12))
def test_any_history_agrees_with_a_plain_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_RUN_ROWS", 64)
    monkeypatch.setattr(stage, "_SORTED_ROWS", 8)
    monkeypatch.setattr(stage, "_SEARCHES_MAX", 3)
    random = Random(seed)
    staged, plain = Stage(), dict[int, tuple[int, int]]()
    now_ms = 0
    for index in range(1, 600):
        match random.choice(
            ["add", "add", "release", "release", "cancel", "move", "bytes", "save"]
        ):
            case "add":
                times = [now_ms + random.randrange(500) for _ in range(random.randrange(1, 12))]
                staged.add(index, dues(*times))
                for place, due_ms in enumerate(times):
                    number = stage_number(index, place)
                    plain[number] = (due_ms, number)
            case "release":
                now_ms += random.randrange(30)
                found = staged.due(now_ms, count_max=20)
                ready = sorted((due, n) for n, (due, _) in plain.items() if due <= now_ms)
                assert [(each.due_ms, each.number) for each in found] == ready[:20]
                staged.release(numbers_of(found))
                for number in numbers_of(found):
                    del plain[number]
            case "cancel" | "move" as verb:
                chosen = random.sample(sorted(plain), min(len(plain), random.randrange(6)))
                if verb == "cancel":
                    assert staged.cancel(chosen) == [True] * len(chosen)
                    for number in chosen:
                        del plain[number]
                elif chosen:
                    assert staged.move(chosen, now_ms + 50) == [True] * len(chosen)
                    for number in chosen:
                        plain[number] = (now_ms + 50, plain[number][1])
            case "bytes":
                old = staged.below(index // 2, count_max=10)
                staged.restage(index, numbers_of(old))
                for place, each in enumerate(old):
                    plain[each.number] = (plain[each.number][0], stage_number(index, place))
            case "save":
                saved = staged.snapshot()
                staged = Stage()
                staged.restore(saved)
        assert len(staged) == len(plain)
        oldest = min((where for _, where in plain.values()), default=None)
        assert staged.first_index == (None if oldest is None else oldest >> 20)
        earliest = min((due for due, _ in plain.values()), default=None)
        if staged.due(now_ms, count_max=1):
            assert staged.next_due_ms == earliest
        assert (staged.next_due_ms is None) == (earliest is None)
    everything = [(each.due_ms, each.number, each.where) for each in staged.in_order()]
    assert everything == sorted((due, n, where) for n, (due, where) in plain.items())
    page = everything[len(everything) // 2 :][:5]
    after = everything[len(everything) // 2 - 1][:2]
    assert [(each.due_ms, each.number, each.where) for each in staged.in_order(after)][:5] == page

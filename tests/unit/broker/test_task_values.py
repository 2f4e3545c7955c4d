"""Ids and types of tasks as text."""

import pytest

from penstock.broker.task_values import (
    TaskPlace,
    check_type,
    parse_task_id,
    read_max_retries,
    task_id,
    topic_of,
    type_of,
)
from penstock.errors import InvalidRequest, MessageNotFound


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0-12", TaskPlace("", 0, 12)),
        ("email:3-12", TaskPlace("email", 3, 12)),
        (
            "mail.send:0-s17-4~1794795423172",
            TaskPlace("mail.send", 0, None, "0-s17-4", 1794795423172),
        ),
    ],
)
def test_an_id_names_the_type_and_the_place(text: str, place: TaskPlace) -> None:
    message = place.staged_id or f"{place.partition}-{place.offset}"

    assert parse_task_id(text) == place
    assert task_id(place.type, message, place.due_ms or None) == text


@pytest.mark.parametrize(
    "text", ["", "email", "email:", "email:0", "0-s1-1", "0-x", "0-1~5", "-1-1"]
)
def test_a_text_that_is_no_id_names_no_task(text: str) -> None:
    with pytest.raises(MessageNotFound, match="not the id of one"):
        parse_task_id(text)


@pytest.mark.parametrize("name", ["a b", "a/b", ".hidden", "x.dlq", "a:b", "x" * 101])
def test_a_type_that_no_topic_can_be_named_after_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="type is "):
        check_type(name)


def test_types_have_topics_of_their_own() -> None:
    assert [type_of(topic_of(each)) for each in ("", "email", "mail.send")] == [
        "",
        "email",
        "mail.send",
    ]
    assert [type_of(each) for each in ("orders", "tasksx", "tasks.email.dlq")] == [None, None, None]


def test_a_header_that_makes_no_sense_leaves_the_default() -> None:
    assert read_max_retries(()) == 3
    assert read_max_retries((("task-max-retries", b"7"),)) == 7
    assert read_max_retries((("task-max-retries", b"many"),)) == 3
    assert read_max_retries((("task-max-retries", b"99999"),)) == 1_000

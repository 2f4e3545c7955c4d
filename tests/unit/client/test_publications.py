"""Messages as they are written into requests, and results as they are read."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from penstock.client import publications
from penstock.client.publications import (
    IdempotencyKeys,
    Publication,
    Published,
    PublishIncomplete,
    publish_call,
)
from penstock.errors import InvalidRequest, NotLeader, TopicNotFound
from penstock.record import partition_of_idempotency_key

DONE = {"id": "0-7", "partition": 0, "offset": 7, "timestamp": 5}


def body_of(publication: Publication) -> dict[str, Any]:
    call = publish_call("orders", [publication], "all")
    return msgspec.json.decode(call.content or b"")["messages"][0]


def failure(kind: str, *, retryable: bool) -> dict[str, Any]:
    return {"error": {"type": kind, "message": "no", "retryable": retryable}}


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (b"text", {"value": "text"}),
        ("text", {"value": "text"}),
        (None, {"value": None}),
        ({"a": [1]}, {"value": '{"a":[1]}'}),
        (b"\xff", {"value": "/w==", "encoding": "base64"}),
    ],
)
def test_values_are_text_where_they_can_be(value: object, body: dict[str, Any]) -> None:
    assert body_of(Publication(value=value)) == body


@pytest.mark.parametrize(
    "value", [float("nan"), {"a": [1.5, float("inf")]}, {"a": None, "b": (float("-inf"),)}]
)
def test_a_number_that_has_no_form_in_json_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"holds -?(nan|inf)"):
        body_of(Publication(value=value))


def test_nothing_is_no_such_number() -> None:
    assert body_of(Publication(value={"a": [None, 1.5]})) == {"value": '{"a":[null,1.5]}'}


def test_a_batch_takes_publications_alone() -> None:
    with pytest.raises(InvalidRequest, match=r"'text' is no Publication; .*Publication\(value="):
        publish_call("orders", ["text"], "all")  # type: ignore[list-item]
    with pytest.raises(InvalidRequest, match="'text' is no Publication"):
        IdempotencyKeys().keyed("text", "orders")  # type: ignore[arg-type]


def test_what_is_said_about_a_message_travels_with_it() -> None:
    publication = Publication(
        value="v",
        key=b"\xff",
        headers={"a": "b"},
        partition=2,
        timestamp_ms=3,
        priority=9,
        deliver_at=datetime(2031, 1, 1, tzinfo=UTC),
        ttl_s=1.5,
        idempotency_key="once",
    )

    assert body_of(publication) == {
        "value": "v",
        "key": "/w==",
        "key_encoding": "base64",
        "headers": {"a": "b"},
        "partition": 2,
        "timestamp": 3,
        "priority": 9,
        "deliver_at": 1924992000000,
        "ttl": 1.5,
        "idempotency_key": "once",
    }


def test_what_cannot_be_sent_is_refused_with_its_value() -> None:
    with pytest.raises(InvalidRequest, match="2031-01-01T00:00:00, which has no time zone"):
        body_of(Publication(value="", deliver_at=datetime(2031, 1, 1)))  # noqa: DTZ001
    with pytest.raises(InvalidRequest, match="a object cannot be written as JSON"):
        body_of(Publication(value=object()))
    with pytest.raises(InvalidRequest, match=r"0 messages were given, not 1\.\.10000"):
        publish_call("orders", [], "all")


def test_a_publish_can_be_repeated_when_every_message_has_a_key() -> None:
    keys = IdempotencyKeys()
    plain = Publication(value="v")
    first, second = keys.keyed(plain, "orders"), keys.keyed(plain, "orders")

    assert first.idempotency_key != second.idempotency_key
    assert keys.keyed(first, "orders") is first
    assert publish_call("orders", [first, second], "all").is_repeatable
    assert not publish_call("orders", [first, plain], "all").is_repeatable


def partitions_of(those: Iterable[Publication], among: int) -> Counter[int]:
    """Return how many messages each partition gets; all of them may go anywhere."""
    return Counter(
        partition_of_idempotency_key(each.idempotency_key or "", among) for each in those
    )


@pytest.mark.parametrize("among", [1, 3, 8, 12])
def test_partitions_take_turns_whatever_is_published_beside_them(among: int) -> None:
    keys = IdempotencyKeys()
    plain: list[Publication] = []
    for _ in range(10 * among):
        plain.append(keys.keyed(Publication(value="v"), "orders"))
        keys.keyed(Publication(value="v", key="anna"), "orders")
        keys.keyed(Publication(value="v", partition=0), "orders")
        keys.keyed(Publication(value="v"), "others")

    assert partitions_of(plain, among) == dict.fromkeys(range(among), 10)


def test_clients_do_not_all_begin_with_one_partition() -> None:
    firsts = [IdempotencyKeys().keyed(Publication(value="v"), "orders") for _ in range(200)]

    assert len(partitions_of(firsts, 4)) == 4


def test_no_key_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "_SERIES_MAX", 2)
    keys = IdempotencyKeys()
    given = [
        keys.keyed(Publication(value="v", key=key), topic).idempotency_key
        for _ in range(50)
        for topic in ("a", "b", "c")
        for key in (None, "anna")
    ]

    assert len(set(given)) == len(given)


def test_one_message_can_fail_alone() -> None:
    call = publish_call("orders", [Publication(value="v")] * 2, "all")
    answer = {"results": [DONE, failure("TopicNotFound", retryable=False)]}

    placed, failed = call.read(msgspec.json.encode(answer))

    assert placed == Published(id="0-7", partition=0, offset=7, timestamp_ms=5)
    assert isinstance(failed, TopicNotFound)


def test_a_failure_that_may_pass_lets_the_whole_be_sent_again() -> None:
    call = publish_call("orders", [Publication(value="v")] * 2, "all")
    answer = {"results": [DONE, failure("NotLeader", retryable=True)]}

    with pytest.raises(PublishIncomplete, match="1 of 2 messages failed: no") as caught:
        call.read(msgspec.json.encode(answer))
    assert isinstance(caught.value.results[1], NotLeader)

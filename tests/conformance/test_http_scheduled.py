"""Scheduled messages over HTTP: seen, cancelled, moved and released, on a running node."""

import time
from typing import Any

import pytest

from tests.http_calls import ask, http_topic, publish_values, receive, refusal
from tests.processes import NodeProcess


def values(node: NodeProcess, topic: str, **body: Any) -> list[str]:
    return [each["value"] for each in receive(node, f"{topic}/groups/g", **body)]


def test_a_delayed_message_is_not_delivered_before_its_time(node: NodeProcess) -> None:
    topic = http_topic(node)
    begin = time.time()

    published = ask(node, "POST", f"{topic}/publish", value="later", delay="800ms")

    assert published["offset"] is None
    assert published["deliver_at"] >= begin * 1000 + 800
    found: list[dict[str, Any]] = []
    while not found:
        found = receive(node, f"{topic}/groups/g", wait="20ms")
    assert time.time() >= begin + 0.8
    assert [message["id"] for message in found] == [published["id"]]


def test_scheduled_messages_are_listed_in_the_order_of_their_time(node: NodeProcess) -> None:
    topic = http_topic(node)
    publish_values(node, topic, "second", delay="2h", key="k", headers={"a": "1"})
    publish_values(node, topic, "first", delay="1h")

    listed = ask(node, "GET", f"{topic}/scheduled")
    page = ask(node, "GET", f"{topic}/scheduled?max=1")
    rest = ask(node, "GET", f"{topic}/scheduled?after={page['after']}")

    assert [each["value"] for each in listed["messages"]] == ["first", "second"]
    assert (listed["waiting"], listed["after"]) == (2, None)
    assert listed["messages"][1]["key"] == "k"
    assert listed["messages"][1]["headers"]["a"] == "1"
    assert rest["messages"] == listed["messages"][1:]


def test_a_cancelled_message_is_gone_and_a_released_one_comes_at_once(node: NodeProcess) -> None:
    topic = http_topic(node)
    first, second = publish_values(node, topic, "a", "b", delay="1h")

    cancelled = ask(node, "POST", f"{topic}/scheduled/cancel", ids=[first, "nonsense"])
    released = ask(node, "POST", f"{topic}/scheduled/release", ids=[second, first])

    assert cancelled["accepted"] == 1
    assert [each["id"] for each in cancelled["failed"]] == ["nonsense"]
    assert released["failed"][0]["error"]["type"] == "MessageNotFound"
    assert values(node, topic) == ["b"]
    assert ask(node, "GET", f"{topic}/scheduled")["waiting"] == 0


def test_the_time_to_live_begins_at_the_time_of_delivery_that_a_header_names(
    node: NodeProcess,
) -> None:
    topic = http_topic(node)
    due_ms = int(time.time() * 1000) + 1_500

    ask(
        node,
        "POST",
        f"{topic}/publish",
        value="a",
        ttl="1s",
        headers={"penstock-deliver-at": str(due_ms)},
    )

    (listed,) = ask(node, "GET", f"{topic}/scheduled")["messages"]
    assert listed["headers"]["penstock-expires-at"] == str(due_ms + 1_000)


def test_a_message_is_given_another_time(node: NodeProcess) -> None:
    topic = http_topic(node)
    first, second = publish_values(node, topic, "a", "b", delay="1h")

    ask(node, "POST", f"{topic}/scheduled/move", ids=[first], deliver_at="2040-01-01T00:00:00Z")
    ask(node, "POST", f"{topic}/scheduled/move", ids=[second], delay=0)

    assert values(node, topic) == ["b"]
    (left,) = ask(node, "GET", f"{topic}/scheduled")["messages"]
    assert (left["value"], left["deliver_at"]) == ("a", 2_208_988_800_000)


MISTAKES = [
    ("GET", "?max=2000", {}, 400, "1000"),
    ("GET", "?after=x", {}, 400, "'x'"),
    ("POST", "/cancel", {"ids": []}, 400, "length"),
    ("POST", "/move", {"ids": ["0-s1-0"]}, 400, "deliver_at"),
    ("POST", "/move", {"ids": ["0-s1-0"], "deliver_at": "soon"}, 400, "'soon'"),
    ("POST", "/move", {"ids": ["0-s1-0"], "delay": "5000d"}, 400, "5000d"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "named"), MISTAKES)
def test_a_mistake_is_refused_by_naming_it(
    node: NodeProcess, method: str, path: str, body: dict[str, Any], status: int, named: str
) -> None:
    topic = http_topic(node)

    answered, _, message = refusal(node, method, f"{topic}/scheduled{path}", **body)

    assert answered == status
    assert named in message


@pytest.mark.parametrize("verb", ["cancel", "release", "move"])
def test_an_id_that_is_too_large_for_any_message_is_told_beside_the_others(
    node: NodeProcess, verb: str
) -> None:
    topic = http_topic(node)
    known = ask(node, "POST", f"{topic}/publish", value="later", delay="1h")["id"]
    unknown = f"0-s{10**15 - 1}-0"
    more = {"delay": "2h"} if verb == "move" else {}

    changed = ask(node, "POST", f"{topic}/scheduled/{verb}", ids=[known, unknown], **more)

    assert changed["accepted"] == 1
    assert [each["id"] for each in changed["failed"]] == [unknown]
    assert changed["failed"][0]["error"]["type"] == "MessageNotFound"

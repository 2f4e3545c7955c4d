"""Dead letters over HTTP: found, edited, sent back and purged, on a running node."""

from typing import Any

import pytest

from tests.http_calls import ask, http_topic, publish_values, receive, refusal
from tests.kafka_clients import wait_until
from tests.processes import NodeProcess


def rejected(node: NodeProcess, *values: str, reason: str = "broken", group: str = "g") -> str:
    """Let a new topic have dead letters; return its path."""
    topic = http_topic(node)
    publish_values(node, topic, *values, key="k", headers={"kind": "order"})
    reject_all(node, topic, len(values), reason=reason, group=group)
    return topic


def reject_all(node: NodeProcess, topic: str, count: int, *, reason: str, group: str) -> None:
    receipts = [each["receipt"] for each in receive(node, f"{topic}/groups/{group}")]
    assert len(receipts) == count
    before = len(letters(node, topic))
    ask(node, "POST", f"{topic}/groups/{group}/reject", receipts=receipts, reason=reason)
    wait_until(lambda: len(letters(node, topic)) == before + count, "the dead letters are there")


def letters(node: NodeProcess, topic: str, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(node, "GET", f"{topic}/dead-letters{query}")["letters"]
    return found


def test_a_rejected_message_is_found_with_its_history(node: NodeProcess) -> None:
    topic = rejected(node, "a", reason="not an order")

    (letter,) = letters(node, topic)

    assert (letter["key"], letter["value"], letter["headers"]) == ("k", "a", {"kind": "order"})
    assert letter["source_topic"] == topic.rsplit("/", 1)[1]
    assert (letter["source_partition"], letter["source_offset"]) == (0, 0)
    assert (letter["group"], letter["attempts"], letter["redriven"]) == ("g", 1, 0)
    assert "not an order" in (letter["reason"], letter["error"])
    assert ask(node, "GET", f"{topic}/dead-letters/{letter['id']}") == letter


def test_dead_letters_are_searched_page_by_page(node: NodeProcess) -> None:
    topic = rejected(node, "a", "b", reason="no database")
    reject_all(node, topic, 2, reason="no network", group="h")

    assert [each["value"] for each in letters(node, topic, "?reason=database")] == ["a", "b"]
    assert len(letters(node, topic, "?group=h")) == 2
    assert letters(node, topic, "?key=other") == []
    page = ask(node, "GET", f"{topic}/dead-letters?max=3")
    rest = ask(node, "GET", f"{topic}/dead-letters?max=3&after={page['after']}")
    assert len(page["letters"]) == 3
    assert (len(rest["letters"]), rest["after"]) == (1, None)


def test_dead_letters_are_sent_back(node: NodeProcess) -> None:
    topic = rejected(node, "a", "b")
    group = f"{topic}/groups/g"

    planned = ask(node, "POST", f"{topic}/dead-letters/redrive", dry_run=True)
    assert (planned["moved"], planned["skipped"], planned["failed"]) == (2, 0, 0)
    assert (planned["errors"], planned["unknown"], planned["dry_run"]) == ([], [], True)
    assert len(letters(node, topic)) == 2

    done = ask(node, "POST", f"{topic}/dead-letters/redrive", rate=1000)
    assert (done["moved"], done["dry_run"]) == (2, False)
    assert letters(node, topic) == []
    assert [each["value"] for each in receive(node, group)] == ["a", "b"]


def test_chosen_dead_letters_are_sent_to_another_topic(node: NodeProcess) -> None:
    topic, other = rejected(node, "a", "b"), http_topic(node)
    first = letters(node, topic)[0]["id"]

    ask(node, "POST", f"{topic}/dead-letters/redrive", ids=[first], to=other.rsplit("/", 1)[1])

    assert [each["value"] for each in receive(node, f"{other}/groups/g")] == ["a"]
    assert [each["value"] for each in letters(node, topic)] == ["b"]


def test_a_message_that_keeps_dying_is_held_back(node: NodeProcess) -> None:
    topic = rejected(node, "a")
    ask(node, "POST", f"{topic}/dead-letters/redrive")
    reject_all(node, topic, 1, reason="again", group="g")

    held = ask(node, "POST", f"{topic}/dead-letters/redrive", redrives_max=1)

    assert (held["moved"], held["skipped"]) == (0, 1)


def test_a_dead_letter_is_edited_before_it_is_sent_back(node: NodeProcess) -> None:
    topic = rejected(node, "a")
    (letter,) = letters(node, topic)

    edited = ask(node, "PUT", f"{topic}/dead-letters/{letter['id']}", value={"total": 12})
    ask(node, "POST", f"{topic}/dead-letters/redrive")

    assert (edited["value"], edited["key"], edited["group"]) == ('{"total":12}', "k", "g")
    (message,) = receive(node, f"{topic}/groups/g")
    assert (message["value"], message["key"]) == ('{"total":12}', "k")
    assert message["headers"]["kind"] == "order"


def test_dead_letters_are_purged(node: NodeProcess) -> None:
    topic = rejected(node, "a", "b", "c")
    first = letters(node, topic)[0]["id"]

    assert ask(node, "POST", f"{topic}/dead-letters/purge", ids=[first])["purged"] == 1
    assert [each["value"] for each in letters(node, topic)] == ["b", "c"]
    assert ask(node, "POST", f"{topic}/dead-letters/purge") == {"purged": 2, "unknown": []}
    assert letters(node, topic) == []


def test_ids_that_no_dead_letter_has_are_named(node: NodeProcess) -> None:
    topic = rejected(node, "a")

    sent = ask(node, "POST", f"{topic}/dead-letters/redrive", ids=["0-0", "0-99"], dry_run=True)
    purged = ask(node, "POST", f"{topic}/dead-letters/purge", ids=["0-99", "nothing"])

    assert (sent["moved"], sent["unknown"]) == (1, ["0-99"])
    assert purged == {"purged": 0, "unknown": ["0-99", "nothing"]}


def test_dead_letters_in_a_topic_of_their_groups_own_are_shown_and_edited(
    node: NodeProcess,
) -> None:
    topic = http_topic(node)
    own = {"delivery.dead.letter.topic": f"{topic.rsplit('/', 1)[1]}.audit"}
    ask(node, "PUT", f"{topic}/groups/audit", settings=own)
    publish_values(node, topic, "a")
    reject_all(node, topic, 1, reason="broken", group="g")
    reject_all(node, topic, 1, reason="unaudited", group="audit")

    ours, audited = letters(node, topic)

    assert (ours["id"], audited["error"]) == ("0-0", "unaudited")
    assert ask(node, "GET", f"{topic}/dead-letters/{audited['id']}") == audited
    edited = ask(node, "PUT", f"{topic}/dead-letters/{audited['id']}", value="b")
    assert [each["value"] for each in letters(node, topic)] == ["a", "b"]
    assert ask(node, "POST", f"{topic}/dead-letters/purge", ids=[edited["id"]])["purged"] == 1


def test_topics_that_share_dead_letters_deal_with_their_own(node: NodeProcess) -> None:
    grave = http_topic(node)
    shared = {"delivery.dead.letter.topic": grave.rsplit("/", 1)[1]}
    topic, other = http_topic(node, settings=shared), http_topic(node, settings=shared)
    for path, value in ((topic, "mine"), (other, "theirs")):
        publish_values(node, path, value)
        reject_all(node, path, 1, reason="broken", group="g")
    (theirs,) = letters(node, other)

    assert [each["value"] for each in letters(node, topic)] == ["mine"]
    assert [each["value"] for each in letters(node, grave)] == ["mine", "theirs"]
    assert refusal(node, "GET", f"{topic}/dead-letters/{theirs['id']}")[0] == 404
    assert ask(node, "POST", f"{topic}/dead-letters/redrive", dry_run=True)["moved"] == 1
    assert ask(node, "POST", f"{topic}/dead-letters/purge")["purged"] == 1
    assert [each["value"] for each in letters(node, grave)] == ["theirs"]


MISTAKES = [
    ("GET", "?max=0", {}, 400, "1..10000"),
    ("GET", "?after=x", {}, 400, "'x'"),
    ("GET", f"?after=0-{'9' * 40}", {}, 400, "'0-999"),
    ("GET", "/0-99", {}, 404, "0-99"),
    ("PUT", "/0-99", {"value": "x"}, 404, "0-99"),
    ("POST", "/redrive", {"rate": 0}, 400, "rate"),
    ("POST", "/redrive", {"max": 20_000}, 400, "10000"),
    ("POST", "/redrive", {"to": "nowhere"}, 404, "nowhere"),
    ("POST", "/purge", {"ids": []}, 400, "length"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "named"), MISTAKES)
def test_a_mistake_is_refused_by_naming_it(
    node: NodeProcess, method: str, path: str, body: dict[str, Any], status: int, named: str
) -> None:
    topic = http_topic(node)

    answered, _, message = refusal(node, method, f"{topic}/dead-letters{path}", **body)

    assert answered == status
    assert named in message

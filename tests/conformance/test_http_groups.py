"""Queue groups over HTTP: looked at, configured, begun anew and deleted, on a running node."""

from typing import Any

import pytest

from tests.http_calls import ask, call, http_topic, publish_values, receive, refusal
from tests.processes import NodeProcess


def test_a_group_tells_how_far_it_is(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    publish_values(node, topic, *"abcde", timestamp=1_700_000_000_000)
    messages = receive(node, group, max=3)
    ask(node, "POST", f"{group}/ack", receipts=[messages[0]["receipt"]])
    ask(node, "POST", f"{group}/nack", receipts=[messages[1]["receipt"]], delay="1h")

    described = ask(node, "GET", group)

    (partition,) = described["partitions"]
    assert partition == {
        "partition": 0,
        "floor": 1,
        "end": 5,
        "unsettled": 4,
        "in_flight": 1,
        "waiting": 1,
        "dying": 0,
        "oldest": 1_700_000_000_000,
    }
    assert described["totals"]["lag_s"] > 1_000
    assert described["totals"]["unsettled"] == 4
    listed = ask(node, "GET", f"{topic}/groups")["groups"]
    assert [(each["name"], each["totals"]["in_flight"]) for each in listed] == [("g", 1)]


def test_a_blocked_key_is_named_with_its_blocker(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    ask(node, "PUT", group, settings={"delivery.order": "key"})
    ids = publish_values(node, topic, "1", "2", "3", key="order-7")
    publish_values(node, topic, "4", key="order-8")
    assert [each["value"] for each in receive(node, group)] == ["1", "4"]

    described = ask(node, "GET", group)

    assert described["blocked_keys"] == [
        {
            "partition": 0,
            "key": "order-7",
            "key_encoding": "text",
            "blocker": ids[0],
            "waiting": 2,
        }
    ]


def test_messages_in_flight_are_listed(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    ids = publish_values(node, topic, *"abc")
    receive(node, group, max=2, consumer="worker-1")

    out = ask(node, "GET", f"{group}/in-flight")["messages"]

    assert [(each["id"], each["consumer"], each["attempt"]) for each in out] == [
        (ids[0], "worker-1", 1),
        (ids[1], "worker-1", 1),
    ]
    assert len(ask(node, "GET", f"{group}/in-flight?max=1")["messages"]) == 1


def test_settings_may_be_numbers_and_booleans(node: NodeProcess) -> None:
    topic = http_topic(
        node,
        settings={
            "retention.ms": 86_400_000, "min.cleanable.dirty.ratio": 0.25, "preallocate": False
        },
    )  # fmt: skip
    created = ask(node, "GET", topic)["settings"]
    changed = ask(
        node, "PATCH", topic, settings={"retention.ms": 3_600_000, "preallocate": None}
    )["settings"]  # fmt: skip
    group = ask(node, "PUT", f"{topic}/groups/g", settings={"delivery.lease.ms": 1000})

    assert created["retention.ms"]["value"] == "86400000"
    assert created["min.cleanable.dirty.ratio"]["value"] == "0.25"
    assert (created["preallocate"]["value"], created["preallocate"]["is_default"]) == (
        "false",
        False,
    )
    assert changed["retention.ms"]["value"] == "3600000"
    assert changed["preallocate"]["is_default"]
    assert group["settings"]["delivery.lease.ms"]["value"] == "1000"
    status, kind, message = refusal(node, "PATCH", topic, settings={"retention.ms": 1.5})
    assert (status, kind) == (400, "InvalidSetting")
    assert "1.5" in message


def test_a_group_is_created_and_its_settings_are_replaced_and_changed(node: NodeProcess) -> None:
    topic = http_topic(node, settings={"delivery.attempts.max": "9"})
    group = f"{topic}/groups/g"

    created = call(
        node, "PUT", group, settings={"delivery.lease.ms": 1000, "delivery.order": "key"}
    )
    replaced = call(node, "PUT", group, settings={"delivery.lease.ms": "2000"})
    changed = ask(node, "PATCH", group, settings={"delivery.order": "strict"})
    returned = ask(node, "PATCH", group, settings={"delivery.lease.ms": None})

    assert (created.status_code, replaced.status_code) == (201, 200)
    assert own(created.json()) == {"delivery.lease.ms": "1000", "delivery.order": "key"}
    assert own(replaced.json()) == {"delivery.lease.ms": "2000"}
    assert own(changed) == {"delivery.lease.ms": "2000", "delivery.order": "strict"}
    assert own(returned) == {"delivery.order": "strict"}
    assert returned["settings"]["delivery.attempts.max"]["value"] == "9"


def own(described: dict[str, Any]) -> dict[str, str]:
    return {name: each["value"] for name, each in described["settings"].items() if each["is_own"]}


def test_a_group_begins_anew_where_it_is_told(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    publish_values(node, topic, "a", timestamp=1_700_000_000_000)
    publish_values(node, topic, "b", timestamp=1_700_000_100_000)
    receipts = [each["receipt"] for each in receive(node, group)]
    ask(node, "POST", f"{group}/ack", receipts=receipts)

    planned = ask(node, "POST", f"{group}/reset", to="earliest", dry_run=True)
    assert planned == {
        "dry_run": True,
        "partitions": [{"partition": 0, "floor": 2, "target": 0}],
    }
    assert receive(node, group, wait=0) == []

    ask(node, "POST", f"{group}/reset", to="time", time=1_700_000_050_000)
    assert [each["value"] for each in receive(node, group)] == ["b"]

    ask(node, "POST", f"{group}/reset", to="offset", offset=0, partition=0)
    assert [each["value"] for each in receive(node, group)] == ["a", "b"]

    ask(node, "POST", f"{group}/reset", to="latest")
    assert ask(node, "GET", group)["totals"]["unsettled"] == 0


def test_a_deleted_group_is_gone_and_begins_anew(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    publish_values(node, topic, "a")
    (message,) = receive(node, group)
    ask(node, "POST", f"{group}/ack", receipts=[message["receipt"]])

    ask(node, "DELETE", group)

    assert ask(node, "GET", f"{topic}/groups")["groups"] == []
    assert refusal(node, "GET", group)[:2] == (404, "GroupNotFound")
    assert [each["value"] for each in receive(node, group)] == ["a"]


MISTAKES = [
    ("PUT", "", {"settings": {"delivery.lease": "1"}}, 400, "delivery.lease"),
    ("PUT", "", {"settings": {"delivery.order": "random"}}, 400, "random"),
    ("PUT", "", {"settings": {"delivery.lease.ms": "soon"}}, 400, "soon"),
    ("PATCH", "", {"settings": {"retention.ms": "1"}}, 400, "retention.ms"),
    ("POST", "/reset", {"to": "offset"}, 400, "missing"),
    ("POST", "/reset", {"to": "latest", "offset": 3}, 400, "3"),
    ("POST", "/reset", {"to": "offset", "offset": 99}, 400, "0 to 0"),
    ("POST", "/reset", {"to": "sideways"}, 400, "sideways"),
    ("POST", "/reset", {"to": "time", "time": "noon"}, 400, "'noon'"),
    ("POST", "/reset", {"to": "earliest", "partition": 5}, 404, "5"),
    ("GET", "/in-flight?max=20000", {}, 400, "10000"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "named"), MISTAKES)
def test_a_mistake_is_refused_by_naming_it(
    node: NodeProcess, method: str, path: str, body: dict[str, Any], status: int, named: str
) -> None:
    group = f"{http_topic(node)}/groups/g"
    ask(node, "PUT", group)

    answered, _, message = refusal(node, method, f"{group}{path}", **body)

    assert answered == status
    assert named in message


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/in-flight")],
)
def test_a_group_that_does_not_exist_is_named(node: NodeProcess, method: str, path: str) -> None:
    topic = http_topic(node)

    status, kind, message = refusal(node, method, f"{topic}/groups/nobody{path}")

    assert (status, kind) == (404, "GroupNotFound")
    assert "nobody" in message


def test_a_group_cannot_have_any_name(node: NodeProcess) -> None:
    topic = http_topic(node)

    status, _, message = refusal(node, "PUT", f"{topic}/groups/{'x' * 300}")

    assert status == 400
    assert "249" in message

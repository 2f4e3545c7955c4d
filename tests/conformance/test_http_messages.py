"""Publishing, receiving and settling over HTTP, on a running node."""

import base64
import gzip
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import TopicPartition

from tests.http_calls import ask, call, http_topic, publish_values, receive, refusal
from tests.kafka_clients import open_consumer, unique, wait_until
from tests.processes import NodeProcess

BINARY = bytes(range(256))


def test_a_message_comes_back_as_it_was_published(node: NodeProcess) -> None:
    topic = http_topic(node)

    published = ask(
        node, "POST", f"{topic}/publish", key="k", value="text", headers={"a": "1"}, priority="high"
    )
    (message,) = receive(node, f"{topic}/groups/g")

    assert published["offset"] == 0
    assert message["id"] == published["id"]
    assert (message["key"], message["value"], message["attempt"]) == ("k", "text", 1)
    assert message["headers"]["a"] == "1"
    assert message["priority"] == 7
    assert message["lease_until"] > message["timestamp"]


def test_json_is_stored_compact_and_bytes_travel_as_base64(node: NodeProcess) -> None:
    topic = http_topic(node)
    encoded = base64.b64encode(BINARY).decode()

    ask(node, "POST", f"{topic}/publish", value={"total": 12})
    ask(node, "POST", f"{topic}/publish", value=encoded, encoding="base64")
    ask(node, "POST", f"{topic}/publish", value=None, key="gone")
    first, second, third = receive(node, f"{topic}/groups/g")

    assert first["value"] == '{"total":12}'
    assert (second["value"], second["encoding"]) == (encoded, "base64")
    assert third["value"] is None


def test_of_a_batch_only_the_bad_message_fails(node: NodeProcess) -> None:
    topic = http_topic(node)

    answer = ask(
        node,
        "POST",
        f"{topic}/messages",
        messages=[
            {"value": "good"},
            {"value": "bad", "priority": 12},
            {"value": "bad", "partition": 7},
            {"value": "bad", "delay": "soon"},
            {"value": "good too"},
        ],
    )

    assert answer["failed"] == 3
    errors = [each.get("error", {}).get("message", "") for each in answer["results"]]
    assert "12" in errors[1]
    assert "0..9" in errors[1]
    assert "partition 7" in errors[2]
    assert "'soon'" in errors[3]
    assert [each["value"] for each in receive(node, f"{topic}/groups/g")] == ["good", "good too"]


def test_a_message_of_a_wrong_type_fails_alone_in_its_batch(node: NodeProcess) -> None:
    topic = http_topic(node)

    answer = ask(
        node,
        "POST",
        f"{topic}/messages",
        messages=[
            {"value": "good"},
            {"value": "bad", "priority": 1.5},
            {"value": "bad", "partition": -1},
            {"value": "bad", "color": "red"},
            "bad",
            {"value": "good too", "priority": 7},
        ],
    )

    assert answer["failed"] == 4
    errors = [each.get("error", {}).get("message", "") for each in answer["results"]]
    assert errors[1].startswith('message 1 is \'{"value":"bad","priority":1.5}\'')
    assert "$.priority" in errors[1]
    assert "$.partition" in errors[2]
    assert "color" in errors[3]
    assert "message 4 is '\"bad\"'" in errors[4]
    assert {each["error"]["type"] for each in answer["results"][1:5]} == {"InvalidRequest"}
    received = [each["value"] for each in receive(node, f"{topic}/groups/g")]
    assert received == ["good too", "good"]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": "a"},
        {"messages": [], "acks": "all"},
        {"messages": [{"value": "a", "priority": 1.5}], "acks": "some"},
        {"messages": [{"value": "a", "priority": 1.5}], "color": "red"},
        {},
    ],
)
def test_a_body_that_is_no_batch_is_refused_as_a_whole(
    node: NodeProcess, body: dict[str, Any]
) -> None:
    topic = http_topic(node)

    status, kind, _ = refusal(node, "POST", f"{topic}/messages", **body)

    assert (status, kind) == (400, "InvalidRequest")
    assert receive(node, f"{topic}/groups/g", wait=0) == []


@pytest.mark.parametrize("acks", ["all", "none"])
def test_texts_alone_are_published_like_messages_that_are_more(
    node: NodeProcess, acks: str
) -> None:
    topic = http_topic(node)

    texts = ask(
        node, "POST", f"{topic}/messages", messages=[{"value": "äöü"}, {"value": ""}], acks=acks
    )
    more = ask(
        node, "POST", f"{topic}/messages", messages=[{"value": "c", "encoding": "text"}], acks=acks
    )

    assert texts["failed"] == more["failed"] == 0
    results = [*texts["results"], *more["results"]]
    assert all(each.keys() == results[0].keys() for each in results)
    if acks == "all":
        assert [(each["id"], each["offset"]) for each in results[:2]] == [("0-0", 0), ("0-1", 1)]
    found = receive(node, f"{topic}/groups/g", wait=5)
    assert [each["value"] for each in found][:2] == ["äöü", ""]


@pytest.mark.parametrize("acks", ["leader", "none"])
def test_a_publisher_may_be_answered_earlier(node: NodeProcess, acks: str) -> None:
    topic = http_topic(node)

    ask(node, "POST", f"{topic}/publish", value="x", acks=acks)

    assert [each["value"] for each in receive(node, f"{topic}/groups/g")] == ["x"]


def test_messages_without_a_key_are_spread_evenly(node: NodeProcess) -> None:
    topic = http_topic(node, partitions=6)

    together = publish_values(node, topic, *map(str, range(6_000)))
    alone = [ask(node, "POST", f"{topic}/publish", value="x")["id"] for _ in range(60)]

    assert Counter(each.split("-")[0] for each in together) == dict.fromkeys("012345", 1_000)
    assert Counter(each.split("-")[0] for each in alone) == dict.fromkeys("012345", 10)


def test_an_acknowledged_message_does_not_come_back(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    publish_values(node, topic, "a", "b", "c")
    receipts = [each["receipt"] for each in receive(node, group)]

    settled = ask(node, "POST", f"{group}/ack", receipts=receipts[:2])
    for receipt in receipts:
        ask(node, "POST", f"{group}/extend", receipts=[receipt], lease=0)

    assert settled == {"accepted": 2, "failed": []}
    again = receive(node, group)
    assert [(each["value"], each["attempt"]) for each in again] == [("c", 2)]


def test_messages_come_in_exchange_for_acks(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    publish_values(node, topic, "a", "b", "c")
    (first,) = receive(node, group, max=1)

    answer = ask(node, "POST", f"{group}/receive", max=1, ack=[first["receipt"], "no receipt"])
    last = ask(node, "POST", f"{group}/receive", max=1)

    assert [each["value"] for each in answer["messages"]] == ["b"]
    assert answer["acked"]["accepted"] == 1
    (failed,) = answer["acked"]["failed"]
    assert failed["receipt"] == "no receipt"
    assert failed["error"]["type"] == "InvalidReceipt"
    assert [each["value"] for each in last["messages"]] == ["c"]
    assert "acked" not in last
    ask(node, "POST", f"{group}/extend", receipts=[first["receipt"]], lease=0)
    assert receive(node, group, wait=0) == []


def test_a_receipt_that_does_not_hold_fails_alone(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    publish_values(node, topic, "a")
    (message,) = receive(node, group)

    settled = ask(node, "POST", f"{group}/ack", receipts=["nonsense", message["receipt"], "0.1.0"])

    assert settled["accepted"] == 1
    errors = {each["receipt"]: each["error"]["type"] for each in settled["failed"]}
    assert errors == {"nonsense": "InvalidReceipt", "0.1.0": "LeaseExpired"}


def test_a_message_that_is_given_back_comes_after_its_delay(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    publish_values(node, topic, "a", "b")
    first, second = receive(node, group)

    ask(
        node,
        "POST",
        f"{group}/nack",
        receipts=[{"receipt": first["receipt"], "delay": "1h"}, second["receipt"]],
        delay=0,
        reason="busy",
    )

    again = receive(node, group)
    assert [(each["value"], each["attempt"]) for each in again] == [("b", 2)]


def test_a_lease_can_be_extended(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    publish_values(node, topic, "a")
    lease_ms, extended = 150, 0
    while not extended:
        # A slow machine needs a longer lease, so that it has not ended when it is extended.
        lease_ms *= 2
        (message,) = receive(node, group, lease=f"{lease_ms}ms")
        answer = ask(node, "POST", f"{group}/extend", receipts=[message["receipt"]], lease="5m")
        extended = answer["accepted"]

    assert receive(node, group, wait=f"{2 * lease_ms}ms") == []
    ask(node, "POST", f"{group}/extend", receipts=[message["receipt"]], lease=0)
    assert [each["value"] for each in receive(node, group)] == ["a"]


def test_a_receive_waits_for_a_message(node: NodeProcess) -> None:
    topic = http_topic(node)
    got: list[Any] = []

    waiting = threading.Thread(target=lambda: got.extend(receive(node, f"{topic}/groups/g")))
    waiting.start()
    while "g" not in str(ask(node, "GET", f"{topic}/groups")):
        time.sleep(0.01)
    publish_values(node, topic, "late")
    waiting.join(120)

    assert [each["value"] for each in got] == ["late"]


@pytest.mark.parametrize("query", ["", "?a=1"])
def test_a_receive_whose_caller_has_left_takes_no_message(node: NodeProcess, query: str) -> None:
    topic = http_topic(node)
    body = {"wait": "60s"}

    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{node.http_url}{topic}/groups/g/receive{query}", json=body, timeout=1)
    publish_values(node, topic, "for the next")

    (message,) = receive(node, f"{topic}/groups/g")
    assert (message["value"], message["attempt"]) == ("for the next", 1)


def test_a_receive_without_messages_is_answered_when_its_wait_is_over(node: NodeProcess) -> None:
    topic = http_topic(node)

    assert receive(node, f"{topic}/groups/g", wait=0) == []
    assert receive(node, f"{topic}/groups/g", wait="50ms") == []


def test_messages_of_several_topics_are_received_by_one_request(node: NodeProcess) -> None:
    one, two = http_topic(node), http_topic(node)
    publish_values(node, one, "1")
    publish_values(node, two, "2")
    topics = [path.rsplit("/", 1)[1] for path in (one, two)]

    got = [
        ask(node, "POST", "/v1/groups/g/receive", topics=topics, max=10)["messages"]
        for _ in range(2)
    ]

    assert sorted(each["value"] for messages in got for each in messages) == ["1", "2"]


def test_acks_of_several_topics_come_with_a_receive_of_several(node: NodeProcess) -> None:
    paths = one, two = http_topic(node), http_topic(node)
    topics = [path.rsplit("/", 1)[1] for path in paths]
    publish_values(node, one, "1", "2")
    publish_values(node, two, "3")
    (first,) = receive(node, f"{one}/groups/g", max=1)
    (other,) = receive(node, f"{two}/groups/g", max=1)
    done = [{"topic": each["topic"], "receipt": each["receipt"]} for each in (first, other)]
    stale = {"topic": topics[1], "receipt": "no receipt"}

    answer = ask(node, "POST", "/v1/groups/g/receive", topics=topics, ack=[*done, stale])

    assert [each["value"] for each in answer["messages"]] == ["2"]
    assert answer["acked"]["accepted"] == 2
    (failed,) = answer["acked"]["failed"]
    assert (failed["topic"], failed["receipt"]) == (topics[1], "no receipt")
    assert failed["error"]["type"] == "InvalidReceipt"
    unsettled = [ask(node, "GET", f"{each}/groups/g")["totals"]["unsettled"] for each in paths]
    assert unsettled == [1, 0]


def test_an_ack_with_a_receive_of_several_topics_names_its_topic(node: NodeProcess) -> None:
    topics = [http_topic(node).rsplit("/", 1)[1]]

    status, kind, message = refusal(
        node, "POST", "/v1/groups/g/receive", topics=topics, ack=["0.100000001.0"]
    )

    assert (status, kind) == (400, "InvalidRequest")
    assert "$.ack[0]" in message


def test_the_log_is_read_by_offset_and_by_time(node: NodeProcess) -> None:
    topic = http_topic(node)
    publish_values(node, topic, "a", timestamp=1_700_000_000_000)
    publish_values(node, topic, "b", timestamp="2023-11-15T00:00:00Z")
    publish_values(node, topic, "c", timestamp=1_800_000_000_000 - 10)

    by_offset = ask(node, "GET", f"{topic}/records?offset=1&max=1")
    by_time = ask(
        node, "GET", f"{topic}/records?from_time=2023-11-14T23:00:00Z&to_time=1790000000000"
    )

    assert [each["value"] for each in by_offset["records"]] == ["b"]
    assert (by_offset["next_offset"], by_offset["end"]) == (2, 3)
    assert [each["value"] for each in by_time["records"]] == ["b"]


def test_a_window_of_time_leaves_out_what_is_dated_otherwise_and_goes_on_behind_it(
    node: NodeProcess,
) -> None:
    topic = http_topic(node)
    for value, timestamp in (("10h", 10), ("12h", 12), ("9h", 9), ("11h", 11), ("13h", 13)):
        publish_values(node, topic, value, timestamp=1_700_000_000_000 + timestamp * 3_600_000)
    begin_ms, end_ms = (1_700_000_000_000 + hour * 3_600_000 for hour in (10, 12))

    window = ask(node, "GET", f"{topic}/records?from_time={begin_ms}&to_time={end_ms}&max=4")
    rest = ask(node, "GET", f"{topic}/records?offset={window['next_offset']}&to_time={end_ms}")

    assert [each["value"] for each in window["records"]] == ["10h", "11h"]
    assert window["next_offset"] == 4
    assert rest["records"] == []
    assert rest["next_offset"] == rest["end"] == 5


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_a_stream_pushes_no_more_than_its_credits_until_one_is_settled(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    publish_values(node, topic, *"abcd")

    url = f"{node.http_url}{group}/stream?credits=2&lease=60s"
    with httpx.stream("GET", url, timeout=120) as response:
        pushed = events(response)
        first, second = next(pushed), next(pushed)
        # A message may arrive a moment before its lease is committed and counted.
        wait_until(lambda: ask(node, "GET", group)["totals"]["in_flight"] == 2, "two are out")
        status = ask(node, "GET", group)
        ask(node, "POST", f"{group}/ack", receipts=[first["receipt"]])
        third = next(pushed)

    assert response.headers["content-type"].startswith("text/event-stream")
    assert [each["value"] for each in (first, second, third)] == ["a", "b", "c"]
    assert status["totals"]["in_flight"] == 2
    assert status["totals"]["unsettled"] == 4


def test_a_stream_tells_why_it_ends(node: NodeProcess) -> None:
    topic = http_topic(node)

    with httpx.stream("GET", f"{node.http_url}{topic}/groups/g/stream", timeout=120) as response:
        ask(node, "DELETE", topic)
        (told,) = events(response)

    assert told["error"]["type"] == "TopicNotFound"


def test_what_is_nested_too_deeply_is_refused(node: NodeProcess) -> None:
    topic = http_topic(node)
    deep = b"[" * 100_000 + b"]" * 100_000

    for path, body in (
        (f"{topic}/publish", b'{"value": %s}' % deep),
        (f"{topic}/messages", b'{"messages": [{"value": %s}]}' % deep),
        ("/tasks", b'{"type": "deep", "payload": %s}' % deep),
    ):
        response = httpx.post(f"{node.http_url}{path}", content=body, timeout=120)
        assert response.status_code == 400, response.text
        assert "nested too deeply" in response.text


def test_the_life_of_a_message_is_told(node: NodeProcess) -> None:
    topic = http_topic(node)
    group = f"{topic}/groups/g"
    (message_id,) = publish_values(node, topic, "a")
    (message,) = receive(node, group, consumer="worker-1")
    ask(node, "POST", f"{group}/ack", receipts=[message["receipt"]])

    life = ask(node, "GET", f"{topic}/messages/{message_id}/trace")

    steps = {each["kind"]: each for each in life["steps"]}
    assert "COMMITTED" not in steps
    assert steps["DELIVERED"]["consumer"] == "worker-1"
    assert steps["ACKNOWLEDGED"]["group"] == "g"
    assert refusal(node, "GET", f"{topic}/messages/0-77/trace")[:2] == (404, "MessageNotFound")


def test_a_commit_of_a_kafka_group_is_part_of_the_life_of_a_message(node: NodeProcess) -> None:
    topic = http_topic(node)
    first, second = publish_values(node, topic, "a", "b")
    reader = unique("reader")
    with open_consumer(node, reader, enable_auto_commit=False) as consumer:
        place = TopicPartition(topic.rpartition("/")[2], 0, 1)
        consumer.commit(offsets=[place], asynchronous=False)

    def commits(message_id: str) -> list[tuple[str, str]]:
        life = ask(node, "GET", f"{topic}/messages/{message_id}/trace")
        found = [each for each in life["steps"] if each["kind"] == "COMMITTED"]
        return [(each["group"], each["detail"]) for each in found]

    assert commits(first) == [(reader, "the last commit, of offset 1")]
    assert commits(second) == []


MISTAKES = [
    ("POST", "/publish", {}, 400, "no body"),
    ("POST", "/messages", {}, 400, "messages"),
    ("POST", "/publish", {"value": "x", "prioritty": 1}, 400, "prioritty"),
    ("POST", "/publish", {"value": "x", "priority": -1}, 400, "0..9"),
    ("POST", "/publish", {"value": "x", "ttl": "-5s"}, 400, "'-5s'"),
    ("POST", "/publish", {"value": "x", "delay": 1e300}, 400, "1e+300"),
    ("POST", "/publish", {"value": "x", "delay": 1, "deliver_at": 1}, 400, "one of them"),
    ("POST", "/publish", {"value": "x", "deliver_at": "tomorrow"}, 400, "'tomorrow'"),
    ("POST", "/publish", {"value": "!", "encoding": "base64"}, 400, "base64"),
    ("POST", "/publish", {"value": "x", "acks": "some"}, 400, "allowed are all, leader, none"),
    ("POST", "/messages", {"messages": []}, 400, "0 messages"),
    ("POST", "/publish", {"value": "x", "ttl": 0}, 400, "nobody would ever receive"),
    ("POST", "/publish", {"value": "x", "delay": "9999d"}, 400, "between 0 and 315360000 s"),
    ("POST", "/groups/g/receive", {"max": 0}, 400, ">= 1"),
    ("POST", "/groups/g/receive", {"max": 10_001}, 400, "10000"),
    ("POST", "/groups/g/receive", {"ack": ["x"] * 10_001}, 400, "10000"),
    ("POST", "/groups/g/receive", {"ack": ["0.1.1"], "wait": "61s"}, 400, "60"),
    ("POST", "/groups/g/receive", {"wait": "61s"}, 400, "60"),
    ("POST", "/groups/g/receive", {"lease": "13h"}, 400, "43200"),
    ("POST", "/groups/g/ack", {"receipts": []}, 400, "length"),
    ("POST", "/groups/g/ack", {}, 400, "receipts"),
    ("POST", "/groups/g/nack", {"receipts": ["0.1.0"], "delay": "8d"}, 400, "604800"),
    ("GET", "/groups/g/stream?credits=0", {}, 400, "1..10000"),
    ("GET", f"/groups/{'g' * 250}/stream", {}, 400, "1 to 249 bytes"),
    ("GET", "/groups/g/stream?lease=never", {}, 400, "'never'"),
    ("GET", "/groups/g/stream?lease=0s", {}, 400, "without a pause"),
    ("GET", "/records?max=0", {}, 400, "1..10000"),
    ("GET", "/records?max=x", {}, 400, "'x'"),
    ("GET", "/records?partition=9", {}, 404, "partition 9"),
    ("GET", "/records?offset=1&from_time=0", {}, 400, "one of them"),
    ("GET", "/messages/nonsense/trace", {}, 400, "'nonsense'"),
    ("GET", f"/messages/0-{'9' * 5_000}/trace", {}, 404, "holds no message '0-999"),
    ("POST", "/reshard/fence/lift", {"fence": 2**64}, 400, "4611686018427387904"),
    ("POST", "/groups/g%2Freset", {"to": "latest"}, 405, "only DELETE, GET, HEAD, PATCH, PUT"),
    ("GET", "/groups/g%2Fh/nothing/", {}, 404, "nothing at"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "named"), MISTAKES)
def test_a_mistake_is_refused_by_naming_it(
    node: NodeProcess, method: str, path: str, body: dict[str, Any], status: int, named: str
) -> None:
    topic = http_topic(node)

    answered, _, message = refusal(node, method, f"{topic}{path}", **body)

    assert answered == status
    assert named in message


def test_a_topic_that_does_not_exist_is_named(node: NodeProcess) -> None:
    status, kind, message = refusal(node, "GET", "/v1/topics/nowhere/records")

    assert (status, kind) == (404, "TopicNotFound")
    assert "nowhere" in message


def test_a_page_of_another_site_cannot_publish(node: NodeProcess) -> None:
    topic = http_topic(node)

    response = httpx.post(
        f"{node.http_url}{topic}/publish",
        json={"value": "x"},
        headers={"Origin": "http://elsewhere.example"},
    )

    assert response.status_code == 403


def test_an_origin_that_cannot_be_read_is_that_of_another_site(node: NodeProcess) -> None:
    topic = http_topic(node)

    response = httpx.post(
        f"{node.http_url}{topic}/publish", json={"value": "x"}, headers={"Origin": "http://[x"}
    )

    assert response.status_code == 403


def test_a_compressed_body_is_refused_by_its_name_and_not_as_broken_json(node: NodeProcess) -> None:
    topic = http_topic(node)

    for path in (f"{topic}/publish", "/v1/topics", "/"):
        response = httpx.post(
            f"{node.http_url}{path}",
            content=gzip.compress(b'{"value": "x"}'),
            headers={"Content-Encoding": "gzip"},
        )

        assert response.status_code == 415
        assert response.headers["Accept-Encoding"] == "identity"
        assert response.json()["error"]["type"] == "UnsupportedEncoding"
        assert "gzip" in response.json()["error"]["message"]


def test_a_parameter_that_the_query_does_not_have_is_refused(node: NodeProcess) -> None:
    topic = http_topic(node)

    status, kind, message = refusal(node, "GET", f"{topic}/records?partition=0&tome=1")

    assert (status, kind) == (400, "InvalidRequest")
    assert "'tome' is no parameter" in message
    assert "time" in message
    assert ask(node, "GET", "/health?probe=1")


def test_a_method_that_a_path_does_not_take_is_answered_with_all_that_it_takes(
    node: NodeProcess,
) -> None:
    topics = call(node, "PUT", "/v1/topics")
    group = call(node, "POST", f"{http_topic(node)}/groups/g")

    assert (topics.status_code, topics.headers["allow"]) == (405, "GET, HEAD, POST")
    assert (group.status_code, group.headers["allow"]) == (405, "DELETE, GET, HEAD, PATCH, PUT")
    assert "only GET, HEAD, POST" in topics.json()["error"]["message"]


def test_a_path_that_is_not_utf_8_is_refused(node: NodeProcess) -> None:
    topic = http_topic(node)

    received = refusal(node, "POST", f"{topic}/groups/%ff/receive", max=1)
    created = refusal(node, "PUT", f"{topic}/groups/%ff")
    named = receive(node, f"{topic}/groups/%EF%BF%BD", wait=0)

    for status, kind, message in (received, created):
        assert (status, kind) == (400, "InvalidRequest")
        assert "is not UTF-8" in message
    assert named == []


def test_a_body_that_is_too_large_is_refused_with_the_limit(node: NodeProcess) -> None:
    response = call(node, "POST", "/v1/topics", name="x" * 70_000)

    assert response.status_code == 400
    assert "65536 bytes" in response.json()["error"]["message"]

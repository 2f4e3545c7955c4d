"""The Kafka door at the level of bytes: frames, versions, order and limits."""

import dataclasses
import datetime as dt
import socket
import struct
import types
import typing
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.api_versions.v0.request import ApiVersionsRequest as PlainApiVersionsRequest
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.metadata.v1.request import MetadataRequest
from kio.static.primitive import i32Timedelta, i64Timedelta

from tests.kafka_clients import new_topic, publish, read_from, unique, wait_until
from tests.kafka_wire import WireClient, request_frame
from tests.processes import NodeProcess

HELLO = ApiVersionsRequest(client_software_name="wire-test", client_software_version="1")
NEWEST_API_VERSIONS = 99
IDLE_CONNECTIONS = 500
FRAME_BYTES_MAX = 2**21
DELETE_TOPICS = 20
# Records of Produce 0 to 2 are of a format that nobody writes any more; the versions are listed
# because some clients look for them there before they use a newer one.
UNUSED = {(0, version) for version in range(3)}


def can_be_used(node: NodeProcess) -> bool:
    """Whether a new client is served."""
    with WireClient(node.kafka_port) as client:
        return bool(client.ask(HELLO).error_code is ErrorCode.none)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        b"\xff" * 40,
        struct.pack(">hhih", 3, 1, 7, -1) + b"\x7f\xff\xff\xff",
        struct.pack(">hhih", 0, 9, 7, 200) + b"short",
        struct.pack(">hhih", 0, 3, 7, -1) + struct.pack(">hhiii", -1, 1, 1000, 1, 1) + b"\x7f\xff",
        struct.pack(">hhih", 1, 4, 7, -1) + b"\x00" * 5,
        struct.pack(">hhih", 11, 5, 7, -1) + b"\x00\x05group",
        struct.pack(">hhih", 999, 0, 7, -1),
        struct.pack(">hhih", 3, 99, 7, -1),
    ],
    ids=[
        "empty", "one byte", "noise", "array too long", "client id too long", "topics missing",
        "fetch cut short", "join cut short", "unknown api", "unknown version",
    ],
)  # fmt: skip
def test_a_malformed_frame_closes_only_its_own_connection(node: NodeProcess, frame: bytes) -> None:
    with WireClient(node.kafka_port) as other, WireClient(node.kafka_port) as offender:
        other.ask(HELLO)
        offender.send_frame(frame)

        assert offender.is_closed_by_peer()
        assert other.ask(HELLO).error_code is ErrorCode.none


def test_a_client_of_another_protocol_is_turned_away(node: NodeProcess) -> None:
    with WireClient(node.kafka_port) as client:
        client.send_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.is_closed_by_peer()

    assert can_be_used(node)


def test_a_frame_above_the_limit_is_refused_before_its_bytes_come(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--frame-bytes-max", str(FRAME_BYTES_MAX)) as node:
        with WireClient(node.kafka_port) as client:
            client.send_bytes(struct.pack(">i", FRAME_BYTES_MAX + 1))
            assert client.is_closed_by_peer()

        with WireClient(node.kafka_port) as client:
            client.send_bytes(struct.pack(">i", -1))
            assert client.is_closed_by_peer()

        reasons = [str(line.get("reason")) for line in node.log_lines()]
        expected = f"{FRAME_BYTES_MAX + 1} bytes was announced, the limit is {FRAME_BYTES_MAX}"
        assert any(expected in reason for reason in reasons)
        assert can_be_used(node)


def test_a_frame_that_arrives_byte_by_byte_is_answered(node: NodeProcess) -> None:
    frame = request_frame(HELLO, 1)
    with WireClient(node.kafka_port) as client:
        for byte in struct.pack(">i", len(frame)) + frame:
            client.send_bytes(bytes([byte]))

        assert client.receive(ApiVersionsRequest).error_code is ErrorCode.none


def test_a_newer_api_versions_request_gets_the_oldest_answer_with_the_list(
    node: NodeProcess,
) -> None:
    with WireClient(node.kafka_port) as client:
        client.send_frame(struct.pack(">hhih", 18, NEWEST_API_VERSIONS, 42, -1) + b"\x01\x02\x03")
        answer = client.receive(PlainApiVersionsRequest)

        assert answer.error_code is ErrorCode.unsupported_version
        listed = {int(api.api_key): int(api.max_version) for api in answer.api_keys}
        assert listed[18] < NEWEST_API_VERSIONS
        # The client goes on with what it has learnt, on the same connection.
        assert client.ask(HELLO).error_code is ErrorCode.none


def test_requests_on_one_connection_are_answered_in_their_order(node: NodeProcess) -> None:
    requests: list[Any] = [
        HELLO,
        MetadataRequest(topics=None),
        ListGroupsRequest(states_filter=()),
        FindCoordinatorRequest(key="group"),
    ] * 25
    with WireClient(node.kafka_port) as client:
        sent = [client.send(request) for request in requests]

        assert [client.receive_frame()[0] for _ in requests] == sent


def test_hundreds_of_idle_connections_do_not_get_in_the_way(node: NodeProcess) -> None:
    topic = new_topic(node)
    with ExitStack() as stack:
        for _ in range(IDLE_CONNECTIONS):
            address = ("127.0.0.1", node.kafka_port)
            stack.enter_context(socket.create_connection(address, timeout=120))
        publish(node, topic, [b"x"])
        assert read_from(node, topic, 1)[0].value() == b"x"

        gauge = _connections(node)
        assert gauge >= IDLE_CONNECTIONS
    wait_until(lambda: _connections(node) < IDLE_CONNECTIONS, "the connections are forgotten")


def _connections(node: NodeProcess) -> float:
    """Return how many Kafka connections the node says it has."""
    _, text = node.get("/metrics")
    for line in text.decode().splitlines():
        name, _, value = line.partition(" ")
        if "connections" in name and "refused" not in name and not line.startswith("#"):
            return float(value)
    raise AssertionError("the node does not count its connections")


def test_every_version_that_is_listed_is_answered(node: NodeProcess) -> None:
    topic = new_topic(node)
    with WireClient(node.kafka_port) as client:
        listed = client.ask(HELLO).api_keys

    answered = 0
    for api in listed:
        for version in range(api.min_version, api.max_version + 1):
            if (api.api_key, version) in UNUSED:
                continue
            request = minimal_request(int(api.api_key), version, topic)
            with WireClient(node.kafka_port) as client:
                try:
                    client.ask(request)
                except ConnectionError as error:
                    raise AssertionError(f"{type(request).__name__} {version}: {error}") from error
            answered += 1
    assert answered > 150
    assert can_be_used(node)


def minimal_request(api_key: int, version: int, topic: str) -> Any:
    """Return a request with one element in every list and a small value in every field."""
    schema = load_request_schema(api_key, version)
    # The topic is needed by the requests that follow, so another one is to be deleted.
    topic = unique("missing") if api_key == DELETE_TOPICS else topic
    return _minimal(schema, {"name": topic, "topic": topic, "group_id": unique("group")})


# Fields in which zero or an empty text would ask for something else than a plain answer.
_VALUES: dict[str, Any] = {
    "max_wait": i32Timedelta.parse(dt.timedelta(milliseconds=10)),
    "rebalance_timeout": i32Timedelta.parse(dt.timedelta(seconds=10)),
    "validate_only": True,
    "acks": -1,
    "session_epoch": -1,
    "protocol_type": "consumer",
    "client_software_name": "wire-test",
    "client_software_version": "1",
}


def _minimal(schema: Any, names: dict[str, str]) -> Any:
    hints = typing.get_type_hints(schema)
    values = {}
    for field in dataclasses.fields(schema):
        if field.name in names:
            values[field.name] = names[field.name]
        elif field.name in _VALUES:
            values[field.name] = _VALUES[field.name]
        elif field.default is not dataclasses.MISSING and field.default != ():
            values[field.name] = field.default
        else:
            values[field.name] = _small_value(hints[field.name], names)
    return schema(**values)


def _small_value(hint: Any, names: dict[str, str]) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return None
    if typing.get_origin(hint) is tuple:
        return (_small_value(typing.get_args(hint)[0], names),)
    if dataclasses.is_dataclass(hint):
        return _minimal(hint, names)
    for kind, value in (
        (i64Timedelta, i64Timedelta.parse(dt.timedelta(seconds=10))),
        (i32Timedelta, i32Timedelta.parse(dt.timedelta(seconds=10))),
        (uuid.UUID, None),
        (str, "x"),
        (bytes, b""),
        (bool, False),
        (int, 0),
    ):
        if issubclass(hint, kind):
            return value
    raise AssertionError(f"no value for {hint}")

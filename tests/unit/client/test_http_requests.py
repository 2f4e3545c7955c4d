"""JSON over HTTP: what is sent, and which error comes of which answer."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from penstock.client import Client, ClusterAdmin
from penstock.client.http import HttpConnection
from penstock.errors import (
    Conflict,
    InvalidRequest,
    PenstockError,
    TimedOut,
    TopicNotFound,
    Unavailable,
)


@contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[str, list[str]]]:
    """Give the address of a server that always answers the same, and what it was sent."""
    sent: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            sent.append(f"{self.command} {self.path} {content}".strip())
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", sent
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_requests_name_their_subject_in_the_path_and_carry_json() -> None:
    with answering(202, b'{"logs": 3}') as (url, sent):
        cluster = ClusterAdmin(url + "/")
        cluster.move("orders.eu", 0, [1, 4])
        cluster.transfer_leader("orders.eu", 0, 4)
        cluster.remove_node(3)
        logs = cluster.drain(3)

    assert logs == 3
    assert sent == [
        'POST /v1/cluster/partitions/orders.eu/0/move {"nodes":[1,4]}',
        'POST /v1/cluster/partitions/orders.eu/0/transfer-leader {"to":4}',
        "DELETE /v1/cluster/nodes/3",
        'POST /v1/cluster/nodes/3/drain {"shrink":false}',
    ]


def test_a_name_that_is_empty_is_refused_before_anybody_is_asked() -> None:
    with (
        Client("http://localhost:1", retry_s=0) as client,
        pytest.raises(InvalidRequest, match="is empty in /v1/topics/orders/groups//receive"),
    ):
        client.receive("orders", "")


def test_a_topic_cannot_lead_to_another_path() -> None:
    with answering(200, b'{"partitions": []}') as (url, sent):
        ClusterAdmin(url).cancel_move("../x?y", 0)
        assert ClusterAdmin(url).partitions("a&b") == ()

    assert sent == [
        "POST /v1/cluster/partitions/..%2Fx%3Fy/0/cancel-move",
        "GET /v1/cluster/partitions?topic=a%26b",
    ]


@pytest.mark.parametrize(
    ("status", "name", "retryable", "kind"),
    [
        (404, "TopicNotFound", "false", TopicNotFound),
        (409, "Conflict", "false", Conflict),
        (503, "SomethingNewer", "true", Unavailable),
        (400, "SomethingNewer", "false", PenstockError),
        (500, "ClassVar", "false", PenstockError),
        (500, "MemberIdRequired", "false", PenstockError),
    ],
)
def test_an_error_of_the_node_is_raised_again(
    status: int, name: str, retryable: str, kind: type[PenstockError]
) -> None:
    body = f'{{"error": {{"type": "{name}", "message": "no", "retryable": {retryable}}}}}'

    with (
        answering(status, body.encode()) as (url, _),
        pytest.raises(PenstockError, match="no") as e,
    ):
        ClusterAdmin(url).balance()

    assert type(e.value) is kind


@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_of_another_program_is_told_as_such(status: int) -> None:
    with (
        answering(status, b"<html>") as (url, _),
        pytest.raises(PenstockError, match=f"does not answer like Penstock: status {status}"),
    ):
        ClusterAdmin(url).overview()


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_that_does_not_reach_its_node_may_do_so_later(status: int) -> None:
    with (
        answering(status, b"<html>") as (url, _),
        pytest.raises(Unavailable, match=f"does not answer like Penstock: status {status}"),
    ):
        ClusterAdmin(url).overview()


def test_a_port_that_nobody_listens_on_is_unavailable() -> None:
    with pytest.raises(
        Unavailable, match=r"no node can be reached at http://127\.0\.0\.1:1 \(Conn"
    ):
        ClusterAdmin("http://127.0.0.1:1").nodes()


def test_a_node_that_does_not_answer_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TimedOut, match=r"gave no answer within 0\.1 s"):
            HttpConnection(url, wait_s=0.1).request("GET", "/", answer=dict)


@pytest.mark.parametrize(
    "url", ["localhost:8080", "ftp://x", "http://", "http://x:y", "http://[::"]
)
def test_a_url_that_is_none_is_refused_with_its_value(url: str) -> None:
    with pytest.raises(InvalidRequest, match="not http://HOST:PORT"):
        ClusterAdmin(url).nodes()

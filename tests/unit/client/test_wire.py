"""HTTP without sockets: what is sent, and answers in pieces of any size."""

import pytest

from penstock.client.wire import Answer, AnswerReader, Target, encode_request
from penstock.errors import InvalidRequest, Unavailable

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"


def test_a_request_names_host_path_and_length() -> None:
    target = Target.parse("http://[::1]:8080/prefix/")

    assert encode_request(target, "POST", "/v1/topics", b"{}") == (
        b"POST /prefix/v1/topics HTTP/1.1\r\nHost: [::1]:8080\r\nAccept: application/json\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert encode_request(target, "DELETE", "/x", None).endswith(b"Content-Length: 0\r\n\r\n")


@pytest.mark.parametrize("cut", range(1, len(ANSWER)))
def test_an_answer_may_come_in_two_pieces(cut: int) -> None:
    reader = AnswerReader()

    assert reader.feed(ANSWER[:cut]) is None
    assert reader.feed(ANSWER[cut:]) == Answer(200, b"{}", is_reusable=True)


def test_an_answer_in_chunks_is_put_together() -> None:
    assert AnswerReader().feed(CHUNKED) == Answer(503, b"abcd", is_reusable=True)


def test_a_connection_that_the_node_closes_is_not_used_again() -> None:
    answer = AnswerReader().feed(
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )

    assert answer is not None
    assert not answer.is_reusable


def test_the_end_of_the_connection_ends_an_answer_without_a_length() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall there is")

    assert reader.feed_end() == Answer(200, b"all there is", is_reusable=False)


@pytest.mark.parametrize("received", [b"", ANSWER[:10], ANSWER[:-1]])
def test_an_answer_that_breaks_off_is_no_answer(received: bytes) -> None:
    reader = AnswerReader()
    reader.feed(received)

    with pytest.raises(Unavailable, match="closed before the answer was whole"):
        reader.feed_end()


def test_bytes_that_are_not_http_are_no_answer() -> None:
    with pytest.raises(Unavailable, match="not an answer of HTTP"):
        AnswerReader().feed(b"\x00\x00\x00\x10kafka")


def test_a_port_that_is_left_out_follows_from_the_scheme() -> None:
    assert Target.parse("http://node").port == 80
    assert Target.parse(" https://node/ ").port == 443
    with pytest.raises(InvalidRequest, match="'node:8080', not http://HOST:PORT"):
        Target.parse("node:8080")

"""Where Spark cannot start is told in one sentence, before it is tried."""

import socket

import pytest

from penstock.errors import InvalidRequest, Unavailable
from penstock.spark import open_session


def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize("master", ["", "lokal", "local[x]", "local[", "http://here:1", "spark://"])
def test_a_master_that_is_none_is_refused(master: str) -> None:
    with pytest.raises(InvalidRequest, match="is not where Spark can run: local"):
        open_session("refused", master=master)


@pytest.mark.parametrize("master", ["spark://here", "spark://here:port", "spark://a:1,:2"])
def test_a_master_needs_a_host_and_a_port(master: str) -> None:
    with pytest.raises(InvalidRequest, match="is not the address of a master: spark://HOST:PORT"):
        open_session("refused", master=master)


def test_masters_that_do_not_answer_are_named() -> None:
    first, second = unused_port(), unused_port()
    master = f"spark://127.0.0.1:{first},127.0.0.1:{second}"

    told = f"answers at 127.0.0.1:{first}: .*refused; 127.0.0.1:{second}: .*refused"
    with pytest.raises(Unavailable, match=told):
        open_session("refused", master=master)

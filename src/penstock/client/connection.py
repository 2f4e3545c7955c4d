"""Where the cluster is, and how long to wait for it."""

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from penstock.client.translation import translate
from penstock.errors import InvalidRequest, TimedOut, Unavailable

BOOTSTRAP_DEFAULT = "localhost:9092"
PORT_DEFAULT = 9092
PROBE_WAIT_S = 3.0

T = TypeVar("T")

# librdkafka writes to stderr unless it is given a logger. What matters to a caller is raised.
_log = logging.getLogger("penstock.client.librdkafka")
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Connection:
    """Addresses of a cluster, `host:port` separated by commas, and the limit of every wait."""

    bootstrap: str = BOOTSTRAP_DEFAULT
    wait_s: float = 15.0

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return librdkafka's settings for this cluster; underscores stand for dots."""
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "penstock",
            "socket.connection.setup.timeout.ms": 5_000,
            "logger": _log,
            **named,
        }

    def probe(self) -> None:
        """Raise `Unavailable` at once when nothing listens at any of the addresses.

        librdkafka itself would go on trying until its time is up, and then not say why.
        """
        refusals = []
        for host, port in self.addresses():
            try:
                with socket.create_connection((host, port), timeout=PROBE_WAIT_S):
                    return
            except OSError as error:
                refusals.append(f"{host}:{port} ({error.strerror or error})")
        raise Unavailable(f"no broker can be reached at {', '.join(refusals)}")

    def wait(self, future: Future[T], doing: str) -> T:
        """Return the result of one librdkafka call, or raise its translated error."""
        try:
            return future.result(self.wait_s)
        except KafkaException as error:
            raise translate(error, doing) from None
        except TimeoutError:
            message = f"{doing}: {self.bootstrap} gave no answer within {self.wait_s:g} s"
            raise TimedOut(message) from None

    def addresses(self) -> Iterator[tuple[str, int]]:
        """Yield host and port of each address; raise `InvalidRequest` where one is none."""
        for address in self.bootstrap.split(","):
            host, colon, port = address.strip().rpartition(":")
            if not colon or port.endswith("]"):
                host, port = address.strip(), str(PORT_DEFAULT)
            if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
                raise InvalidRequest(f"bootstrap is {address!r}, not HOST or HOST:PORT")
            yield host.strip("[]"), int(port)


def check_bootstrap(bootstrap: str) -> None:
    """Raise `InvalidRequest` when a text does not hold addresses of nodes."""
    for _ in Connection(bootstrap).addresses():
        pass

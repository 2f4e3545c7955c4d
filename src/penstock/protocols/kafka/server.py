"""Listening for Kafka clients."""

import asyncio
import itertools
import logging
from collections.abc import Mapping

from penstock.broker import Broker
from penstock.protocols.kafka.api import Api
from penstock.protocols.kafka.apis import all_apis
from penstock.protocols.kafka.connection import Connection

logger = logging.getLogger(__name__)

_SCRATCH_BYTES = 256 * 1024
_BACKLOG = 1024
_DRAIN_POLL_S = 0.02


class KafkaServer:
    """The open connections and what they share."""

    def __init__(self, broker: Broker) -> None:
        options = broker.options
        self.broker = broker
        self.statistics = broker.statistics
        self.scratch = bytearray(_SCRATCH_BYTES)
        self.frame_bytes_max = options.frame_bytes_max
        self.requests_in_flight_max = options.requests_in_flight_max
        self.apis: Mapping[int, Api] = all_apis()
        self.is_draining = False
        self._connections: set[Connection] = set()
        self._numbers = itertools.count()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which matters when any free one was asked for."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), host, port, backlog=_BACKLOG, reuse_address=True
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def next_connection(self) -> int:
        """Return a number that no connection has had."""
        return next(self._numbers)

    def admit(self, connection: Connection) -> bool:
        """Take note of a connection, or refuse it."""
        if len(self._connections) >= self.broker.options.connections_max:
            self.statistics.connections_refused += 1
            logger.warning(
                "connection refused", extra={"connections": self.broker.options.connections_max}
            )
            return False
        self._connections.add(connection)
        self.statistics.connections = len(self._connections)
        return True

    def dismiss(self, connection: Connection) -> None:
        """Forget a connection, and end what lives no longer than it."""
        self.broker.share.connection_lost(connection.number, is_ours=self.is_draining)
        self._connections.discard(connection)
        self.statistics.connections = len(self._connections)

    def _is_idle(self) -> bool:
        return all(connection.is_idle for connection in self._connections)

    async def stop(self, grace_s: float) -> None:
        """Stop listening, let requests in flight be answered, then close all connections."""
        self.is_draining = True
        if self._server is not None:
            self._server.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        while loop.time() < deadline and not self._is_idle():  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_POLL_S)
        for connection in tuple(self._connections):
            connection.end()

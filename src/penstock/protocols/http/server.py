"""Runs an application on a port of the event loop that is already running."""

import asyncio
import socket
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from penstock.protocols.http.connection import connection_class
from penstock.protocols.http.routing import ShortWay

STOP_WAIT_S = 5
# Longer than the longest poll, so that a consumer keeps its connection.
KEEP_ALIVE_S = 75


class HttpServer:
    """A listening server. It leaves signals, log settings and the loop to its owner."""

    def __init__(self, server: uvicorn.Server, listener: socket.socket) -> None:
        self._server = server
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        # uvicorn keeps the date header fresh here, and waits for the request to stop.
        self._ticks = asyncio.get_running_loop().create_task(server.main_loop(), name="http")

    @classmethod
    async def start(cls, app: ASGIApp, *, host: str, port: int, short_way: ShortWay | None) -> Self:
        """Return once connections are accepted; an address that is taken raises `OSError`."""
        listener = _bind(host, port)
        config = uvicorn.Config(
            app,
            http=connection_class(short_way),
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_WAIT_S,
        )
        config.load()
        server = uvicorn.Server(config)
        # `Server.serve` would take over SIGINT and SIGTERM, so its steps are taken one by one.
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        return cls(server, listener)

    async def stop(self) -> None:
        """Stop accepting, let requests in flight finish for a few seconds, then close."""
        self._server.should_exit = True
        await self._ticks
        await self._server.shutdown(sockets=[self._listener])


async def serve_http(
    app: ASGIApp, host: str, port: int, *, short_way: ShortWay | None = None
) -> HttpServer:
    """Serve `app` until `stop()`; port 0 takes any free port, which `.port` tells.

    Requests that take the short way do not reach the application.
    """
    return await HttpServer.start(app, host=host, port=port, short_way=short_way)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener

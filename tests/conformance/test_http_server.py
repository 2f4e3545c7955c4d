"""The HTTP server inside a running loop."""

import asyncio
import signal

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from penstock.protocols.http import serve_http


async def hello(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


APP = Starlette(routes=[Route("/", hello)])


def test_a_free_port_is_taken_and_told_and_given_back() -> None:
    async def scenario() -> None:
        server = await serve_http(APP, "127.0.0.1", 0)
        async with httpx.AsyncClient() as client:
            response = await client.get(f"http://127.0.0.1:{server.port}/")
        await server.stop()

        assert response.text == "hello"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)

    asyncio.run(scenario())


def test_a_port_in_use_is_an_error_of_the_caller_and_ends_nothing_else() -> None:
    async def scenario() -> None:
        server = await serve_http(APP, "127.0.0.1", 0)
        try:
            with pytest.raises(OSError, match="in use"):
                await serve_http(APP, "127.0.0.1", server.port)
        finally:
            await server.stop()

    asyncio.run(scenario())


def test_signals_stay_with_the_owner_of_the_process() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def scenario() -> None:
        server = await serve_http(APP, "127.0.0.1", 0)
        assert signal.getsignal(signal.SIGTERM) is before
        await server.stop()

    asyncio.run(scenario())


def test_an_idle_connection_does_not_delay_the_stop() -> None:
    async def scenario() -> None:
        server = await serve_http(APP, "127.0.0.1", 0)
        _reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.timeout(3):
            await server.stop()
        writer.close()

    asyncio.run(scenario())

"""Endpoints are found by the shape of a path, and others by the list of patterns."""

import asyncio

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from penstock.protocols.http.endpoints import Call, Endpoint
from penstock.protocols.http.exchange import in_full
from penstock.protocols.http.routing import ShapeRouter


def answer(name: str) -> Call:
    async def call(request: Request) -> Response:
        return PlainTextResponse(f"{name} {dict(request.path_params)}")

    return call


def endpoint(path: str, name: str) -> Endpoint:
    return Endpoint(path=path, name=name, summary="", description="", answers={}, call=answer(name))


ENDPOINTS = [
    endpoint("/topics/{topic}/publish", "publish"),
    endpoint("/groups/{group}/publish", "group"),
    endpoint("/topics/{topic}", "topic"),
]
ROUTER = ShapeRouter([Route(each.path, in_full(each.call)) for each in ENDPOINTS], ENDPOINTS)


@pytest.mark.parametrize(
    ("path", "answered"),
    [
        ("/topics/a%20b/publish", "publish {'topic': 'a b'}"),
        ("/groups/g/publish", "group {'group': 'g'}"),
        ("/groups/a%2Fb%20%c3%a4/publish", "group {'group': 'a/b ä'}"),
        ("/topics/%2f", "topic {'topic': '/'}"),
        ("/topics/a%2Fpublish", "topic {'topic': 'a/publish'}"),
        ("/topics%2Fa/publish", "Not Found"),
        ("/topics/publish", "topic {'topic': 'publish'}"),
        ("/topics//publish", "Not Found"),
        ("/others/a/publish", "Not Found"),
    ],
)
def test_a_path_is_answered_by_its_endpoint(path: str, answered: str) -> None:
    async def ask() -> str:
        transport = httpx.ASGITransport(ROUTER)
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return (await client.get(path)).text

    assert asyncio.run(ask()) == answered

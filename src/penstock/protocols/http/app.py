"""The application behind the HTTP port: all endpoints, and what becomes of errors."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ExceptionHandler

from penstock import __version__
from penstock.errors import PenstockError
from penstock.protocols.http.answers import Check, Health, Readiness
from penstock.protocols.http.archives import archive_endpoints
from penstock.protocols.http.cluster import cluster_endpoints
from penstock.protocols.http.dead_letters import dead_letter_endpoints
from penstock.protocols.http.documentation import render_page
from penstock.protocols.http.endpoints import (
    BODY_BYTES_MAX,
    JSON,
    Answer,
    Endpoint,
    GuestDoor,
    Shortcut,
)
from penstock.protocols.http.exchange import (
    encode_json,
    in_full,
    json_response,
    knowing_its_query,
    through,
)
from penstock.protocols.http.failures import Failures, Refusal
from penstock.protocols.http.groups import group_endpoints
from penstock.protocols.http.journals import journal_endpoints
from penstock.protocols.http.openapi import describe
from penstock.protocols.http.publishing import publishing_endpoints
from penstock.protocols.http.receiving import receiving_endpoints
from penstock.protocols.http.records import record_endpoints
from penstock.protocols.http.reshards import reshard_endpoints
from penstock.protocols.http.routing import ShapeRouter, ShortWay, counted, shortcuts_of
from penstock.protocols.http.scheduled import schedule_endpoints
from penstock.protocols.http.streaming import streaming_endpoints
from penstock.protocols.http.tasks import task_endpoints
from penstock.protocols.http.topics import topic_endpoints
from penstock.protocols.http.traces import trace_endpoints
from penstock.protocols.http.view import NodeView
from penstock.protocols.http.writes import write_endpoints

# The page carries its own style and nothing else, so nothing else may load or run.
PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class HttpApp(Starlette):
    """The endpoints, and a short way to those that the server may answer by itself."""

    short_way: ShortWay


def create_app(
    view: NodeView, *, body_bytes_max: int = BODY_BYTES_MAX, queue_door: GuestDoor | None = None
) -> HttpApp:
    """Build the application; it asks `view` anew for every answer.

    `queue_door` answers at `/` and below the account numbers that addresses of queues begin with.
    """
    statistics = view.statistics
    failures = Failures(statistics)
    endpoints = [
        *_endpoints(view),
        *topic_endpoints(view),
        *publishing_endpoints(view, failures, bytes_max=body_bytes_max),
        *receiving_endpoints(view, failures),
        *streaming_endpoints(view, failures),
        *group_endpoints(view),
        *dead_letter_endpoints(view, bytes_max=body_bytes_max),
        *schedule_endpoints(view, failures),
        *write_endpoints(view, bytes_max=body_bytes_max),
        *trace_endpoints(view),
        *journal_endpoints(view),
        *record_endpoints(view),
        *archive_endpoints(view),
        *reshard_endpoints(view),
        *task_endpoints(view, bytes_max=body_bytes_max),
        *cluster_endpoints(view),
    ]

    @cache
    def document() -> dict[str, Any]:
        # It takes longer than everything else that a node does before it serves.
        return describe(endpoints, version=__version__)

    async def openapi(_request: Request) -> Response:
        return json_response(document())

    async def docs(_request: Request) -> Response:
        headers = {"Content-Security-Policy": PAGE_POLICY}
        return HTMLResponse(render_page(document()), headers=headers)

    long_ways = [
        replace(each, call=counted(knowing_its_query(each), each.name, statistics))
        for each in endpoints
    ]
    routes: list[BaseRoute] = [
        Route(each.path, in_full(each.call), methods=[each.method]) for each in long_ways
    ]
    routes += [
        Route("/openapi.json", counted(openapi, "openapi", statistics)),
        Route("/docs", counted(docs, "docs", statistics)),
    ]
    if queue_door is not None:
        routes += [
            Route("/", through(queue_door), methods=["GET", "POST"]),
            Route("/{account:int}/{queue}", through(queue_door), methods=["GET", "POST"]),
        ]
    app = HttpApp(exception_handlers=_exception_handlers(failures))
    app.router = ShapeRouter(routes, long_ways)
    app.short_way = ShortWay(shortcuts_of(endpoints, statistics, queue_door), failures)
    return app


def _endpoints(view: NodeView) -> list[Endpoint]:
    async def health(_path: Mapping[str, str], _body: bytes) -> bytes:
        uptime_s = round(view.uptime_s(), 3)
        return encode_json(Health(version=__version__, node_id=view.node_id, uptime_s=uptime_s))

    async def ready(_request: Request) -> Response:
        checks = [
            Check(name=check.name, passed=check.is_passed, detail=check.detail)
            for check in view.checks()
        ]
        is_ready = all(check.passed for check in checks)
        return json_response(
            Readiness(ready=is_ready, checks=checks), status=200 if is_ready else 503
        )

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(view.registry), headers={"Content-Type": content_type})

    return [
        Endpoint(
            path="/health",
            name="health",
            summary="Is the process alive?",
            description="Restart the node when this stops answering. It says nothing about disks"
            " or partitions; ask `/ready` for those.",
            answers={200: Answer(meaning="The process is alive.", body=Health)},
            call=Shortcut(health, is_for_any_site=True),
        ),
        Endpoint(
            path="/ready",
            name="ready",
            summary="Should the node be sent traffic?",
            description="Every check is listed with the values that decided.",
            answers={
                200: Answer(meaning="Every check passes.", body=Readiness),
                503: Answer(meaning="At least one check does not pass.", body=Readiness),
            },
            call=ready,
        ),
        Endpoint(
            path="/metrics",
            name="metrics",
            summary="Everything that the node counts",
            description="Prometheus text exposition, or OpenMetrics when the request accepts it.",
            answers={200: Answer(meaning="One line per series.", media_type="text/plain")},
            call=metrics,
        ),
    ]


def _exception_handlers(failures: Failures) -> dict[Any, ExceptionHandler]:
    async def on_penstock_error(_request: Request, error: Exception) -> Response:
        assert isinstance(error, PenstockError)
        return _response(failures.refusal_of(error))

    async def on_http_exception(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind, message = _describe(request, error)
        headers = dict(error.headers) if error.headers else None
        return _response(failures.refuse(kind, message, status=error.status_code, headers=headers))

    async def on_surprise(_request: Request, _error: Exception) -> Response:
        # The server logs the error with its trace.
        return _response(failures.surprise())

    return {
        HTTPException: on_http_exception,
        PenstockError: on_penstock_error,
        Exception: on_surprise,
    }


def _describe(request: Request, error: HTTPException) -> tuple[str, str]:
    """Return the name of what the framework has refused, and what to say about it."""
    path, method = request.url.path, request.method
    match error.status_code:
        case 404:
            return "NotFound", f"There is nothing at {path}; /docs lists what there is."
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            return (
                "MethodNotAllowed",
                f"{path} does not answer {method}, only {allowed}; /docs lists what there is.",
            )
        case 403:
            return "Forbidden", str(error.detail)
        case 415:
            return "UnsupportedEncoding", str(error.detail)
        case _:
            return "InvalidRequest", str(error.detail)


def _response(refusal: Refusal) -> Response:
    return Response(refusal.body, refusal.status, refusal.headers, media_type=JSON)

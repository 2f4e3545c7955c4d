"""The application behind the HTTP port: all endpoints, and what becomes of errors."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from penstock import __version__
from penstock.errors import PenstockError
from penstock.protocols.http.answers import Check, Failure, Health, Readiness
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
from penstock.protocols.http.exchange import encode_json, in_full, json_response, through
from penstock.protocols.http.failures import Refusal, refusal_of, refuse, surprise
from penstock.protocols.http.groups import group_endpoints
from penstock.protocols.http.journals import journal_endpoints
from penstock.protocols.http.openapi import describe
from penstock.protocols.http.publishing import publishing_endpoints
from penstock.protocols.http.receiving import receiving_endpoints
from penstock.protocols.http.records import record_endpoints
from penstock.protocols.http.reshards import reshard_endpoints
from penstock.protocols.http.routing import ShapeRouter, Shapes, shortcuts_of
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
    """The endpoints, and those of them that the server may answer by itself."""

    shortcuts: Shapes[Shortcut | GuestDoor]


def create_app(
    view: NodeView, *, body_bytes_max: int = BODY_BYTES_MAX, queue_door: GuestDoor | None = None
) -> HttpApp:
    """Build the application; it asks `view` anew for every answer.

    `queue_door` answers at `/` and below the account numbers that addresses of queues begin with.
    """
    endpoints = [
        *_endpoints(view),
        *topic_endpoints(view),
        *publishing_endpoints(view, bytes_max=body_bytes_max),
        *receiving_endpoints(view),
        *streaming_endpoints(view),
        *group_endpoints(view),
        *dead_letter_endpoints(view, bytes_max=body_bytes_max),
        *schedule_endpoints(view),
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

    routes: list[BaseRoute] = [
        Route(each.path, in_full(each.call), methods=[each.method]) for each in endpoints
    ]
    routes += [Route("/openapi.json", openapi), Route("/docs", docs)]
    if queue_door is not None:
        routes += [
            Route("/", through(queue_door), methods=["POST"]),
            Route("/{account:int}/{queue}", through(queue_door), methods=["GET", "POST"]),
        ]
    app = HttpApp(
        exception_handlers={
            HTTPException: _on_http_exception,
            PenstockError: _on_penstock_error,
            Exception: _on_surprise,
        },
    )
    app.router = ShapeRouter(routes, endpoints)
    app.shortcuts = shortcuts_of(endpoints, queue_door)
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


def _response(refusal: Refusal) -> Response:
    return Response(refusal.body, refusal.status, refusal.headers, media_type=JSON)


async def _on_penstock_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return _response(refusal_of(error))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, method = request.url.path, request.method
    match error.status_code:
        case 404:
            kind, message = "NotFound", f"There is nothing at {path}; /docs lists what there is."
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            kind, message = "MethodNotAllowed", f"{path} does not answer {method}, only {allowed}."
        case 403:
            kind, message = "Forbidden", str(error.detail)
        case _:
            kind, message = "InvalidRequest", str(error.detail)
    failure = Failure(type=kind, message=message, retryable=False)
    headers = dict(error.headers) if error.headers else None
    return _response(refuse(failure, status=error.status_code, headers=headers))


async def _on_surprise(_request: Request, _error: Exception) -> Response:
    # The server logs the error with its trace.
    return _response(surprise())

"""The HTTP door: health, readiness, metrics, its own description, and errors as JSON."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from penstock import __version__
from penstock.broker import Statistics
from penstock.errors import (
    Corruption,
    NotLeader,
    PenstockError,
    TopicExists,
    TopicNotFound,
    UnsupportedVersion,
)
from penstock.protocols.http import CheckView, create_app


@dataclass(frozen=True)
class FakeCheck:
    name: str
    is_passed: bool
    detail: str


@dataclass
class FakeNode:
    """A `NodeView` whose answers the test sets."""

    node_id: int = 7
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    statistics: Statistics = field(default_factory=Statistics)
    failing: tuple[str, ...] = ()
    operations: Any = None

    def uptime_s(self) -> float:
        return 12.34567

    def checks(self) -> Sequence[CheckView]:
        names = ("log-recovered", "disk-space")
        return [FakeCheck(name, name not in self.failing, "3 of 3") for name in names]


def ask(app: Starlette, path: str, *, method: str = "GET", accept: str = "*/*") -> httpx.Response:
    """Send one request to an application without a socket."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return await client.request(method, path, headers={"Accept": accept})

    return asyncio.run(send())


def test_health_tells_version_node_and_uptime() -> None:
    response = ask(create_app(FakeNode()), "/health")

    assert response.status_code == 200
    assert response.json() == {
        "status": "alive",
        "version": __version__,
        "node_id": 7,
        "uptime_s": 12.346,
    }


def test_a_node_that_passes_every_check_is_ready() -> None:
    response = ask(create_app(FakeNode()), "/ready")

    assert response.status_code == 200
    assert response.json() == {
        "ready": True,
        "checks": [
            {"name": "log-recovered", "passed": True, "detail": "3 of 3"},
            {"name": "disk-space", "passed": True, "detail": "3 of 3"},
        ],
    }


def test_one_failing_check_makes_a_node_unready_and_is_named() -> None:
    response = ask(create_app(FakeNode(failing=("disk-space",))), "/ready")

    assert response.status_code == 503
    assert response.json()["ready"] is False
    assert [check["name"] for check in response.json()["checks"] if not check["passed"]] == [
        "disk-space"
    ]


def test_metrics_are_prometheus_text_of_the_registry_given() -> None:
    node = FakeNode()
    Counter("records_total", "Records stored.", registry=node.registry).inc(3)

    response = ask(create_app(node), "/metrics")

    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert "records_total 3.0" in response.text


def test_metrics_are_openmetrics_for_those_who_accept_it() -> None:
    accept = "application/openmetrics-text; version=1.0.0"

    response = ask(create_app(FakeNode()), "/metrics", accept=accept)

    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


def test_the_openapi_document_describes_every_endpoint_and_resolves_its_references() -> None:
    response = ask(create_app(FakeNode()), "/openapi.json")
    document = response.json()

    assert document["openapi"] == "3.1.0"
    assert {"/health", "/ready", "/metrics", "/v1/cluster"} <= set(document["paths"])
    for name in re.findall(r"#/components/schemas/(\w+)", response.text):
        assert name in document["components"]["schemas"]
    assert document["paths"]["/ready"]["get"]["responses"].keys() == {"200", "503", "default"}


def test_the_openapi_document_says_which_bodies_are_needed() -> None:
    paths = ask(create_app(FakeNode()), "/openapi.json").json()["paths"]

    for path in ("/v1/topics/{topic}/publish", "/v1/topics/{topic}/messages", "/tasks"):
        assert paths[path]["post"]["requestBody"]["required"] is True
    receive = paths["/v1/topics/{topic}/groups/{group}/receive"]["post"]
    assert receive["requestBody"]["required"] is False


def test_the_openapi_document_has_no_schema_that_is_a_boolean() -> None:
    # It may, but generators of clients expect an object.
    text = ask(create_app(FakeNode()), "/openapi.json").text

    assert '"prefixItems"' in text
    assert re.findall(r'"items":(?:true|false)', text) == []


def test_the_page_for_people_tells_limits_defaults_and_units() -> None:
    page = ask(create_app(FakeNode()), "/docs").text

    assert "<td>1..10000. 10 if left out.</td>" in page
    assert "Up to 12 h; the group&#x27;s own if left out. Seconds, or a text with a unit" in page


def test_the_page_for_people_shows_every_endpoint_and_loads_nothing() -> None:
    response = ask(create_app(FakeNode()), "/docs")

    assert response.status_code == 200
    for path in ("/health", "/ready", "/metrics"):
        assert f"<code>{path}</code>" in response.text
    assert re.findall(r'(?:src|href)="([^"#][^"]*)"', response.text) == ["/openapi.json"]
    assert "<script" not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]


def test_a_wrong_path_is_answered_with_json() -> None:
    response = ask(create_app(FakeNode()), "/helth")

    assert response.status_code == 404
    assert response.json() == {
        "error": {
            "type": "NotFound",
            "message": "There is nothing at /helth; /docs lists what there is.",
            "retryable": False,
        }
    }


def test_a_wrong_method_is_answered_with_json_and_the_allowed_ones() -> None:
    response = ask(create_app(FakeNode()), "/health", method="POST")

    assert response.status_code == 405
    assert "GET" in response.headers["allow"]
    assert response.json()["error"]["type"] == "MethodNotAllowed"
    assert "/docs" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnsupportedVersion("version is 9"), 400),
        (TopicNotFound("no topic x"), 404),
        (TopicExists("topic x exists"), 409),
        (NotLeader("node 2 leads"), 503),
        (Corruption("bad checksum"), 500),
    ],
)
def test_an_error_has_the_status_of_its_kind_and_says_whether_to_retry(
    error: PenstockError, status: int
) -> None:
    app = create_app(FakeNode())

    async def fail(_request: Request) -> None:
        raise error

    app.router.routes.append(Route("/fail", fail))
    response = ask(app, "/fail")

    assert response.status_code == status
    assert response.json()["error"] == {
        "type": type(error).__name__,
        "message": str(error),
        "retryable": error.retryable,
    }
    assert ("retry-after" in response.headers) is error.retryable


def test_an_unforeseen_error_tells_a_client_nothing_of_the_inside() -> None:
    app = create_app(FakeNode())

    async def fail(_request: Request) -> None:
        raise RuntimeError("secret")

    app.router.routes.append(Route("/fail", fail))
    response = ask(app, "/fail")

    assert response.status_code == 500
    assert response.json()["error"]["type"] == "InternalError"
    assert "secret" not in response.text

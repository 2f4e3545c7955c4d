"""Requests made up from the OpenAPI document: none of them makes a running node fail."""

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode

from penstock.broker import Statistics
from penstock.protocols.http import create_app
from tests.http_calls import ask, http_topic, publish_values, receive
from tests.kafka_clients import wait_until
from tests.processes import NodeProcess

EXAMPLES = 6
TIMEOUT_S = 120
# It never ends.
LEFT_OUT = {"stream"}
QUICK = {"wait": 0, "partitions": 2}


def document() -> Any:
    """Return the document, which is the same for every node."""
    view: Any = SimpleNamespace(statistics=Statistics())

    async def read() -> Any:
        transport = httpx.ASGITransport(create_app(view))
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return (await client.get("/openapi.json")).json()

    return asyncio.run(read())


SCHEMA = schemathesis.openapi.from_dict(document())
OPERATIONS = {
    each.ok().definition.raw["operationId"]: each.ok() for each in SCHEMA.get_all_operations()
}


@pytest.fixture(scope="module")
def known(node: NodeProcess) -> dict[str, Any]:
    """Names that exist, with something behind every path."""
    path = http_topic(node)
    publish_values(node, path, *"abc", key="k")
    first, *_ = receive(node, f"{path}/groups/g")
    ask(node, "POST", f"{path}/groups/g/reject", receipts=[first["receipt"]])
    wait_until(lambda: ask(node, "GET", f"{path}/dead-letters")["letters"], "a dead letter")
    return {"topic": path.rsplit("/", 1)[1], "group": "g", "id": "0-0"}


def by_harm(name: str) -> tuple[bool, str]:
    """Those that take away what others look at come last."""
    return name.startswith("delete"), name


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - LEFT_OUT, key=by_harm))
def test_no_request_makes_a_node_fail(node: NodeProcess, known: dict[str, Any], name: str) -> None:
    operation = OPERATIONS[name]
    names = {each.name for each in operation.path_parameters}
    given_path = {key: value for key, value in known.items() if key in names}

    send_all(node, operation, GenerationMode.POSITIVE, given_path)
    if names:
        send_all(node, operation, GenerationMode.POSITIVE, {})
    if operation.query or operation.body:
        send_all(node, operation, GenerationMode.NEGATIVE, given_path)


def send_all(node: NodeProcess, operation: Any, mode: GenerationMode, path: dict[str, Any]) -> None:
    """Send requests that follow the document, or that break it."""

    @given(case=operation.as_strategy(mode, path_parameters=path or None))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Case) -> None:
        if isinstance(case.body, dict):
            # How long a poll lasts and how many files a topic has are no questions here.
            case.body.update({name: QUICK[name] for name in QUICK if name in case.body})
        response = case.call(base_url=node.http_url, timeout=TIMEOUT_S)

        assert response.status_code < 500, f"{case.as_curl_command()}\n{response.text}"

    send()

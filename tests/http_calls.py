"""Calls of a node's HTTP door as a client would make them, for tests."""

import uuid
from typing import Any

import httpx

from tests.processes import NodeProcess

_TIMEOUT_S = 120


def call(node: NodeProcess, method: str, path: str, **body: Any) -> httpx.Response:
    """Send one request, with the named values as its JSON body where there are any."""
    content = body or None
    return httpx.request(method, f"{node.http_url}{path}", json=content, timeout=_TIMEOUT_S)


def ask(node: NodeProcess, method: str, path: str, **body: Any) -> Any:
    """The same, for a request that succeeds: return the JSON of its answer."""
    response = call(node, method, path, **body)
    assert response.status_code < 300, response.text
    return response.json()


def refusal(node: NodeProcess, method: str, path: str, **body: Any) -> tuple[int, str, str]:
    """The same, for a request that fails: return status, type and message of the error."""
    response = call(node, method, path, **body)
    assert response.status_code >= 400, response.text
    error = response.json()["error"]
    return response.status_code, error["type"], error["message"]


def http_topic(node: NodeProcess, **body: Any) -> str:
    """Create a topic of one partition, and return its path."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    ask(node, "POST", "/v1/topics", **{"name": name, "partitions": 1, **body})
    return f"/v1/topics/{name}"


def publish_values(node: NodeProcess, topic: str, *values: Any, **fields: Any) -> list[str]:
    """Publish values in one request, each with the given fields, and return the ids."""
    messages = [{"value": value, **fields} for value in values]
    answer = ask(node, "POST", f"{topic}/messages", messages=messages)
    assert answer["failed"] == 0, answer
    return [each["id"] for each in answer["results"]]


def receive(node: NodeProcess, group: str, **body: Any) -> list[dict[str, Any]]:
    """Receive messages of the group at a path."""
    answer = ask(node, "POST", f"{group}/receive", **{"max": 100, "wait": "10s", **body})
    messages: list[dict[str, Any]] = answer["messages"]
    return messages

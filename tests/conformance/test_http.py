"""The HTTP door of a running node, asked with a plain HTTP client."""

import httpx

from penstock import __version__
from tests.processes import NodeProcess


def get(node: NodeProcess, path: str) -> httpx.Response:
    return httpx.get(f"{node.http_url}{path}", timeout=120)


def test_a_running_node_is_alive_and_ready(node: NodeProcess) -> None:
    health, ready = get(node, "/health"), get(node, "/ready")

    assert health.status_code == 200
    assert health.json()["version"] == __version__
    assert ready.status_code == 200, ready.text
    assert ready.json()["ready"] is True
    assert ready.json()["checks"]


def test_metrics_are_in_the_text_format_of_prometheus(node: NodeProcess) -> None:
    response = get(node, "/metrics")

    assert response.headers["content-type"].startswith("text/plain")
    assert "# TYPE penstock_" in response.text


def test_the_door_describes_itself_to_programs_and_people(node: NodeProcess) -> None:
    document, page = get(node, "/openapi.json"), get(node, "/docs")

    assert document.json()["openapi"].startswith("3.1")
    assert page.headers["content-type"].startswith("text/html")
    for path in document.json()["paths"]:
        assert path in page.text


def test_a_wrong_path_is_answered_with_json(node: NodeProcess) -> None:
    response = get(node, "/nothing")

    assert response.status_code == 404
    assert response.json()["error"]["retryable"] is False

"""The HTTP door: health, readiness, metrics, the cluster, and the description of itself.

This room turns what a `NodeView` tells into JSON, Prometheus text, an OpenAPI document and a page
for people, and hands on what operators ask for. It keeps no state. Every failure, a wrong path
included, is answered with the same JSON envelope and a status code from one table. What a node
counts, when it is ready and what becomes of a change is left to those who implement `NodeView`.
"""

from penstock.protocols.http.app import create_app
from penstock.protocols.http.endpoints import GuestDoor
from penstock.protocols.http.server import HttpServer, serve_http
from penstock.protocols.http.view import CheckView, NodeView, OperationsView

__all__ = [
    "CheckView",
    "GuestDoor",
    "HttpServer",
    "NodeView",
    "OperationsView",
    "create_app",
    "serve_http",
]

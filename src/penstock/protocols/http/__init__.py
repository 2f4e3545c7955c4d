"""The HTTP door: health, readiness, metrics, and the description of itself.

This room turns what a `NodeView` tells into JSON, Prometheus text, an OpenAPI document and a page
for people. It keeps no state. Every failure, a wrong path included, is answered with the same JSON
envelope and a status code from one table. What a node counts and when it is ready is left to those
who implement `NodeView`.
"""

from penstock.protocols.http.app import create_app
from penstock.protocols.http.server import HttpServer, serve_http
from penstock.protocols.http.view import CheckView, NodeView

__all__ = ["CheckView", "HttpServer", "NodeView", "create_app", "serve_http"]

"""Finds endpoints by the shape of a path, where a list of patterns would be tried in turn.

The list grows with every endpoint, and a publish or an ack of one message is over so soon that a
search through it shows. What is not found by its shape is left to the list.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.routing import BaseRoute, Router
from starlette.types import Receive, Scope, Send

from penstock.protocols.http.endpoints import Endpoint
from penstock.protocols.http.exchange import Call


class _Shape(NamedTuple):
    """The parts of a path that are fixed and those that have a name, by their place."""

    fixed: tuple[tuple[int, str], ...]
    named: tuple[tuple[int, str], ...]
    call: Call


class ShapeRouter(Router):
    """A router whose endpoints are found by method, length and last part of the path."""

    def __init__(self, routes: Sequence[BaseRoute], endpoints: Iterable[Endpoint]) -> None:
        super().__init__(routes=routes)
        self._shapes: dict[tuple[str, int, str], list[_Shape]] = {}
        for each in endpoints:
            parts = each.path.split("/")
            if not parts[-1].startswith("{"):
                key = (each.method, len(parts), parts[-1])
                self._shapes.setdefault(key, []).append(_shape(parts, each.call))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        call = self._find(scope) if scope["type"] == "http" else None
        if call is None:
            await super().__call__(scope, receive, send)
        else:
            response = await call(Request(scope, receive))
            await response(scope, receive, send)

    def _find(self, scope: Scope) -> Call | None:
        """Return what answers, and leave the named parts of the path in the scope."""
        parts = scope["path"].split("/")
        for shape in self._shapes.get((scope["method"], len(parts), parts[-1]), ()):
            if all(parts[place] == text for place, text in shape.fixed):
                named = {name: parts[place] for place, name in shape.named}
                if all(named.values()):
                    scope["path_params"] = named
                    return shape.call
        return None


def _shape(parts: Sequence[str], call: Call) -> _Shape:
    numbered = list(enumerate(parts[:-1]))
    return _Shape(
        tuple((place, part) for place, part in numbered if not part.startswith("{")),
        tuple((place, part[1:-1]) for place, part in numbered if part.startswith("{")),
        call,
    )

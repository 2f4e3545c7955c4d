"""Finds endpoints by the shape of a path, where a list of patterns would be tried in turn.

The list grows with every endpoint, and a publish or an ack of one message is over so soon that a
search through it shows. What is not found by its shape is left to the list.
"""

import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import Receive, Scope, Send

from penstock.broker import Statistics
from penstock.errors import InvalidRequest
from penstock.protocols.http.endpoints import Call, Endpoint, GuestDoor, Shortcut
from penstock.protocols.http.exchange import in_full
from penstock.protocols.http.failures import Failures

Goal = TypeVar("Goal")

_REMEMBERED = 1_024
# A slash that is part of a name, while a path is taken apart. No text that was decoded has this.
_SLASH = "\udc2f"


class _Shape(NamedTuple, Generic[Goal]):
    """The parts of a path that are fixed and those that have a name, by their place."""

    fixed: tuple[tuple[int, str], ...]
    named: tuple[tuple[int, str], ...]
    goal: Goal


class Shapes(Generic[Goal]):
    """Goals by method, length and last part of the path; it must be a fixed one."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, int, str], list[_Shape[Goal]]] = {}
        # A client asks for the same few paths again and again.
        self.find = lru_cache(_REMEMBERED)(self._find)
        """Return the goal of a path and the named parts of it, which are for all to read."""

    def add(self, method: str, path: str, goal: Goal) -> None:
        """Take in a path, unless its last part is named by the caller."""
        parts = path.split("/")
        if not parts[-1].startswith("{"):
            key = (method, len(parts), parts[-1])
            self._shapes.setdefault(key, []).append(_shape(parts, goal))

    def _find(self, method: str, path: str) -> tuple[Goal, Mapping[str, str]] | None:
        parts = path.split("/")
        for fixed, named, goal in self._shapes.get((method, len(parts), parts[-1]), ()):
            if all(parts[place] == text for place, text in fixed):
                names = {name: parts[place] for place, name in named}
                if all(names.values()):
                    return goal, names
        return None


class ShapeRouter(Router):
    """A router whose endpoints are found by their shape."""

    def __init__(self, routes: Sequence[BaseRoute], endpoints: Iterable[Endpoint]) -> None:
        super().__init__(routes=routes)
        self._shapes: Shapes[Call] = Shapes()
        for each in endpoints:
            self._shapes.add(each.method, each.path, in_full(each.call))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        found = None
        if scope["type"] == "http":
            if "\ufffd" in scope["path"]:
                _check_text(scope["raw_path"])
            if b"%2" in scope["raw_path"]:
                await self._with_slashes(scope, receive, send)
                return
            found = self._shapes.find(scope["method"], scope["path"])
        if found is None:
            await self._search(scope, receive, send)
        else:
            call, named = found
            scope["path_params"] = dict(named)
            response = await call(Request(scope, receive))
            await response(scope, receive, send)

    async def _with_slashes(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose names may hold slashes, written as `%2F`."""
        apart = {**scope, "path": _path_apart(scope["raw_path"])}
        for route in self.routes:
            match, found = route.matches(apart)
            if match is Match.FULL:
                params = found["path_params"]
                named = {name: text.replace(_SLASH, "/") for name, text in params.items()}
                scope.update(found, path_params=named)
                await route.handle(scope, receive, send)
                return
        # Not by the list: that would part the names after all.
        if allowed := self._allowed(apart):
            raise HTTPException(405, headers={"Allow": allowed})
        await self.not_found(scope, receive, send)

    async def _search(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except HTTPException as error:
            if error.status_code != 405:
                raise
            # The list has a route for each method, and the framework knows of the first alone.
            raise HTTPException(405, headers={"Allow": self._allowed(scope)}) from None

    def _allowed(self, scope: Scope) -> str:
        """Return the methods that a path takes."""
        allowed = {
            method
            for route in self.routes
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE
            for method in route.methods or ()
        }
        return ", ".join(sorted(allowed))


def _check_text(raw_path: bytes) -> None:
    """Raise `InvalidRequest` where the framework has put U+FFFD for what is not UTF-8."""
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        shown = raw_path[:200].decode("ascii", "backslashreplace")
        raise InvalidRequest(f"the path {shown} is not UTF-8") from None


def _path_apart(raw_path: bytes) -> str:
    """Return a path in which slashes that were written as `%2F` part no names."""
    parts = re.split(b"%2[fF]", raw_path)
    return _SLASH.join(unquote_to_bytes(part).decode(errors="replace") for part in parts)


def counted(call: Call, name: str, statistics: Statistics) -> Call:
    """Return what counts its requests under the name of an endpoint; paths would be too many."""

    async def serve(request: Request) -> Response:
        statistics.count_request("http", name)
        return await call(request)

    return serve


class ShortWay(NamedTuple):
    """What can be answered without the framework, and who describes failures there."""

    shortcuts: Shapes[Shortcut | GuestDoor]
    failures: Failures


def shortcuts_of(
    endpoints: Iterable[Endpoint], statistics: Statistics, door: GuestDoor | None = None
) -> Shapes[Shortcut | GuestDoor]:
    """Return what can be answered without the framework; a door of others is at `/`."""
    shortcuts: Shapes[Shortcut | GuestDoor] = Shapes()
    for each in endpoints:
        if isinstance(each.call, Shortcut):
            shortcut = _counted_shortcut(each.call, each.name, statistics)
            shortcuts.add(each.method, each.path, shortcut)
    if door is not None:
        shortcuts.add("POST", "/", door)
    return shortcuts


def _counted_shortcut(shortcut: Shortcut, name: str, statistics: Statistics) -> Shortcut:
    answer, count = shortcut.answer, statistics.count_request

    # Another coroutine around it would cost more than the counting does.
    def serve(path: Mapping[str, str], body: bytes) -> Awaitable[bytes]:
        count("http", name)
        return answer(path, body)

    return replace(shortcut, answer=serve)


def _shape(parts: Sequence[str], goal: Goal) -> _Shape[Goal]:
    numbered = list(enumerate(parts[:-1]))
    return _Shape(
        tuple((place, part) for place, part in numbered if not part.startswith("{")),
        tuple((place, part[1:-1]) for place, part in numbered if part.startswith("{")),
        goal,
    )

"""Fetch sessions: a client that reads many partitions names only what changed (KIP-227).

A session remembers which partitions its client reads and what it was last told of each. Sessions
live in memory and are dropped when there are too many, oldest use first; the client then starts a
new one by itself.
"""

import secrets
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field

from penstock.broker import Fetched, FetchRequest
from penstock.errors import FetchSessionNotFound, InvalidFetchSessionEpoch
from penstock.ids import TopicPartition

SESSIONS_MAX = 2_000
# A request with this epoch starts a session, one with the other ends it or uses none.
FIRST_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1


@dataclass(slots=True)
class FetchSession:
    """What one client reads, in the order in which it is served."""

    session_id: int
    names_version: int = 0
    epoch: int = 1
    requests: OrderedDict[TopicPartition, FetchRequest] = field(default_factory=OrderedDict)
    # The ids by which the client knows its topics; none when it says their names.
    ids: dict[str, uuid.UUID] = field(default_factory=dict)
    _told: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def forget(self, places: list[TopicPartition]) -> None:
        """Take out what the client reads no longer."""
        for place in places:
            self.requests.pop(place, None)
            self._told.pop(place, None)

    def update(self, changed: list[FetchRequest], ids: dict[str, uuid.UUID]) -> None:
        """Take over what the client changed.

        It comes after `forget`: one request forgets a topic that was created anew and names it.
        """
        self.ids |= ids
        for request in changed:
            self.requests[request.place] = request

    def news(self, found: list[Fetched]) -> list[Fetched]:
        """Return what the client does not know yet."""
        news = []
        for fetched in found:
            marks = (fetched.high_watermark, fetched.start_offset)
            if fetched.data or fetched.error or self._told.get(fetched.place) != marks:
                news.append(fetched)
                self._told[fetched.place] = marks
                if fetched.data:
                    # Served partitions go to the end, so that a busy one cannot starve others.
                    self.requests.move_to_end(fetched.place)
        return news


class FetchSessions:
    """All sessions of a node."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def begin(self, names_version: int) -> FetchSession:
        """Start a session; the least recently used one makes room."""
        session = FetchSession(self._new_id(), names_version)
        self._sessions[session.session_id] = session
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session

    def resume(self, session_id: int, epoch: int, names_version: int) -> FetchSession:
        """Return a session whose next request has this epoch.

        A session knows topics by name, so that it ends when topics may have got other names.
        """
        session = self._sessions.get(session_id)
        if session is None or session.names_version != names_version:
            self.end(session_id)
            raise FetchSessionNotFound(f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}"
            )
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        self._sessions.move_to_end(session_id)
        return session

    def end(self, session_id: int) -> None:
        """Drop a session."""
        self._sessions.pop(session_id, None)

    def _new_id(self) -> int:
        while True:
            session_id = secrets.randbelow(_EPOCH_MAX) + 1
            if session_id not in self._sessions:
                return session_id

"""Keeps writers of a topic out while its copy is made whole, and lets them in again."""

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from penstock.client import Client, TopicFence
from penstock.errors import Conflict, PenstockError, Unavailable

# A fence is lifted a minute after it was last asked for.
RENEW_S = 10.0


class FenceKeeper:
    """A fence from here on, renewed by a thread; it is lifted at the end unless it is left."""

    def __init__(self, client: Client, topic: str, reshard_id: str) -> None:
        self._client = client
        self._topic = topic
        self._reshard_id = reshard_id
        self._is_over = threading.Event()
        self._is_left = False
        self._lost: PenstockError | None = None
        self.raised: TopicFence = client.reshards.fence(topic, reshard_id)
        # What is to be lifted at the end, which is never what the topic is switched behind.
        self._standing = self.raised.fence
        self._thread = threading.Thread(target=self._renew, name="fence", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        if not self._is_left:
            # A node that does not answer lifts it by itself.
            with suppress(Unavailable):
                self._client.reshards.lift(self._topic, self._standing)

    def check(self) -> None:
        """Raise when the fence was lost meanwhile; the node says so too, at the switch."""
        if self._lost is not None:
            raise self._lost

    def leave(self) -> None:
        """Leave the fence where it is: the topic was switched behind it."""
        self._is_left = True

    def _renew(self) -> None:
        while not self._is_over.wait(RENEW_S):
            try:
                again = self._client.reshards.fence(self._topic, self._reshard_id)
            except PenstockError as error:
                if not error.retryable:
                    self._lost = error
                    return
                continue
            if again.fence != self.raised.fence:
                self._lost = Conflict(
                    f"fence {self.raised.fence} of topic {self._topic} was lifted; records may have"
                    " come since"
                )
                self._standing = again.fence
                return

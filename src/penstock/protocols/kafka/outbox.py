"""Sending answers: bytes from memory, and ranges of files, which pass through Python only if small.

The outbox writes to a duplicate of the connection's socket, because the event loop's own transport
cannot interleave its buffer with `sendfile`. Reading stays with the transport.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

from penstock.broker import FileRange

Part = bytes | FileRange

# Up to here, reading a range and sending it in one piece costs less than three system calls, and
# the client is woken once.
_JOINED_BYTES_MAX = 16 * 1024
# Looking a member up in its enum costs as much as a call.
_MORE = int(socket.MSG_MORE)


class Outbox:
    """An ordered queue of parts on their way to one client."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        *,
        on_drained: Callable[[], None],
        on_lost: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._socket = socket.socket(fileno=os.dup(fd))
        self._socket.setblocking(False)
        self._queue: deque[Part] = deque()
        # How much of the first part is gone already.
        self._sent_bytes = 0
        self._is_waiting = False
        self._is_closed = False
        self._on_drained = on_drained
        self._on_lost = on_lost

    @property
    def is_blocked(self) -> bool:
        """True while the client does not take what it was sent."""
        return bool(self._queue)

    def send(self, parts: list[Part]) -> None:
        """Send parts in order, now as far as the socket takes them; none after `close`."""
        if self._is_closed:
            return
        was_blocked = bool(self._queue)
        try:
            if len(parts) > 1:
                parts = _joined(parts)
            if not was_blocked and len(parts) == 1 and isinstance(parts[0], bytes):
                # Most answers are small, and the socket takes them whole.
                self._sent_bytes = self._socket.send(parts[0])
                if self._sent_bytes == len(parts[0]):
                    self._sent_bytes = 0
                    return
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(error)
            return
        self._queue.extend(parts)
        if not was_blocked:
            self._push()

    def _push(self) -> None:
        try:
            while self._queue:
                if not self._send_first():
                    self._wait_until_writable()
                    return
        except BlockingIOError:
            self._wait_until_writable()
            return
        except OSError as error:
            self._lose(error)
            return
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._socket.fileno())
            self._on_drained()

    def _send_first(self) -> bool:
        """Send from the first part; False when the socket took less than all of it."""
        part = self._queue[0]
        if isinstance(part, FileRange):
            size_bytes = part.size_bytes
            sent = os.sendfile(
                self._socket.fileno(),
                part.file.fileno(),
                part.position + self._sent_bytes,
                size_bytes - self._sent_bytes,
            )
            if sent == 0:
                raise OSError(f"the file ends {size_bytes - self._sent_bytes} bytes too early")
        else:
            size_bytes = len(part)
            rest = memoryview(part)[self._sent_bytes :] if self._sent_bytes else part
            sent = self._socket.send(rest, _MORE if len(self._queue) > 1 else 0)
        self._sent_bytes += sent
        if self._sent_bytes < size_bytes:
            return False
        self._queue.popleft()
        self._sent_bytes = 0
        return True

    def _lose(self, error: OSError) -> None:
        self.close()
        self._on_lost(error)

    def _wait_until_writable(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.add_writer(self._socket.fileno(), self._push)

    def close(self) -> None:
        """Drop what was not sent."""
        self._queue.clear()
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()


def _joined(parts: list[Part]) -> list[Part]:
    """Return the parts as one when they are small."""
    size_bytes = sum(map(_size_of, parts))
    if size_bytes > _JOINED_BYTES_MAX:
        return parts
    joined = b"".join(part.read() if isinstance(part, FileRange) else part for part in parts)
    if len(joined) < size_bytes:
        raise OSError(f"a file ends {size_bytes - len(joined)} bytes too early")
    return [joined]


def _size_of(part: Part) -> int:
    return part.size_bytes if isinstance(part, FileRange) else len(part)

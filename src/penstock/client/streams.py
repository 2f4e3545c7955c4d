"""Carries out calls on an event loop, and on those of forked processes."""

import asyncio
import contextlib
import os
import ssl
from typing import NamedTuple, TypeVar

from penstock.client.blocking import CONNECT_WAIT_S, IDLE_MAX, IDLE_S_MAX, READ_BYTES
from penstock.client.calls import Call, read_answer
from penstock.client.forks import watch_forks
from penstock.client.retries import Route, Unreached
from penstock.client.wire import Answer, AnswerReader, Target, encode_request
from penstock.errors import PenstockError, TimedOut, Unavailable

T = TypeVar("T")

# A node that hangs does not keep who leaves.
LEAVE_S_MAX = 2.0


class _Stream(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class _Idle(NamedTuple):
    stream: _Stream
    since_s: float


class StreamCaller:
    """Keeps connections open and repeats calls where that is safe."""

    def __init__(self, route: Route, *, wait_s: float) -> None:
        self._route = route
        self._wait_s = wait_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: dict[str, list[_Idle]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_closed = False
        watch_forks(self)

    def begin_anew(self) -> None:
        """Leave the connections to the parent process."""
        for kept in self._idle.values():
            for each in kept:
                _leave_to_parent(each.stream)
        self._loop, self._idle = None, {}

    async def run(self, call: Call[T]) -> T:
        """Carry out a call, or raise why it cannot be."""
        self._begin_on(asyncio.get_running_loop())
        attempts = self._route.begin(call, _now_s())
        while True:
            target = attempts.target
            try:
                return read_answer(call, await self._exchange(target, call), target.url)
            except Unavailable as error:
                pause_s = attempts.failed(error, _now_s())
            await asyncio.sleep(pause_s)

    def _begin_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Leave the connections of another loop, which is over."""
        if loop is not self._loop:
            self._loop, self._idle, self._leaving = loop, {}, set()

    async def close(self) -> None:
        """Close what is idle; connections in use are closed after their exchange."""
        self._is_closed = True
        self._begin_on(asyncio.get_running_loop())
        await asyncio.gather(*self._leaving, return_exceptions=True)
        writers = [each.stream.writer for kept in self._idle.values() for each in kept]
        self._idle.clear()
        for writer in writers:
            writer.close()
        for writer in writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, target: Target, call: Call[T]) -> Answer:
        wait_s = self._wait_s + call.wait_s
        request = encode_request(target, call.method, call.path, call.content)
        stream = self._take(target) or await _connect(target)
        answer_reader = AnswerReader()
        is_kept = False
        try:
            async with asyncio.timeout(wait_s):
                stream.writer.write(request)
                await stream.writer.drain()
                answer = await _receive(stream.reader, answer_reader)
            is_kept = answer.is_reusable and self._keep(target, stream)
        except TimeoutError:
            raise TimedOut(f"{target.url} gave no answer within {wait_s:g} s") from None
        except (OSError, Unavailable) as error:
            raise Unavailable(f"{target.url} broke off: {error or type(error).__name__}") from None
        except asyncio.CancelledError:
            if call.undo is not None:
                is_kept = True
                leaving = asyncio.create_task(self._leave(target, call, stream, answer_reader))
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)
            raise
        finally:
            if not is_kept:
                stream.writer.close()
        return answer

    async def _leave(
        self, target: Target, call: Call[T], stream: _Stream, answer_reader: AnswerReader
    ) -> None:
        """Tell a node that nobody waits any more, and take back what it had answered by then.

        Messages of such an answer would be out with nobody until their leases end.
        """
        assert call.undo is not None, "only such calls are left in this way"
        with contextlib.suppress(OSError, TimeoutError, PenstockError):
            try:
                async with asyncio.timeout(LEAVE_S_MAX):
                    if stream.writer.can_write_eof():
                        stream.writer.write_eof()
                    answer = await _receive(stream.reader, answer_reader)
            finally:
                stream.writer.close()
            for each in call.undo(read_answer(call, answer, target.url)):
                await self.run(each)

    def _take(self, target: Target) -> _Stream | None:
        """Return an idle connection that the node has not given up, if there is one."""
        oldest_s = _now_s() - IDLE_S_MAX
        kept = self._idle.get(target.url, [])
        while kept:
            stream, since_s = kept.pop()
            if since_s > oldest_s and not stream.reader.at_eof():
                return stream
            stream.writer.close()
        return None

    def _keep(self, target: Target, stream: _Stream) -> bool:
        kept = self._idle.setdefault(target.url, [])
        if self._is_closed or len(kept) >= IDLE_MAX:
            return False
        kept.append(_Idle(stream, _now_s()))
        return True


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _leave_to_parent(stream: _Stream) -> None:
    """Part with a connection of the parent process.

    The loop of the parent waits for it through a file that both processes have. Were it closed
    here, as it is when nobody needs it, the parent would be told of no answer any more. So its
    number stands for nothing before that.
    """
    connection = stream.writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, connection.fileno(), inheritable=False)
        os.close(nothing)


async def _connect(target: Target) -> _Stream:
    context = ssl.create_default_context() if target.is_secure else None
    try:
        async with asyncio.timeout(CONNECT_WAIT_S):
            opened = await asyncio.open_connection(target.host, target.port, ssl=context)
    except TimeoutError:
        raise Unreached(f"no node can be reached at {target.url} (timed out)") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unreached(f"no node can be reached at {target.url} ({reason})") from None
    return _Stream(*opened)


async def _receive(reader: asyncio.StreamReader, answer_reader: AnswerReader) -> Answer:
    while data := await reader.read(READ_BYTES):
        if (answer := answer_reader.feed(data)) is not None:
            return answer
    return answer_reader.feed_end()

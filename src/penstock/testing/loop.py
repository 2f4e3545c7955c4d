"""An event loop and threads in simulated time.

The loop does what a node asks of one: futures, tasks, timers, work in threads, and connections
where it is given wires. Work in a thread runs whole at a moment that the simulation chooses, and
the loop hears of its end at a later one. What is called soon runs at the end of the event that
asked for it.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import Context
from math import ceil
from typing import Any, TypeVar

from penstock.testing.machine import Process, SimMachine
from penstock.testing.schedule import Schedule
from penstock.testing.wires import SimServer, SimTransport, SimWires

T = TypeVar("T")

# Tasks that have ended are forgotten when there are so many.
_TASKS_MAX = 64


class _SimTask(asyncio.Task[Any]):
    """A task whose place in a set depends on the history alone, not on where it lies in memory."""

    def __init__(self, number: int, *args: Any, **options: Any) -> None:
        # Asyncio puts the task into a set of its own at once.
        self._number = number
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number


class SimExecutor(Executor):
    """Threads of one life of a machine. `delay_us` says how long work waits for its turn."""

    def __init__(
        self, schedule: Schedule, machine: SimMachine, delay_us: Callable[[], int]
    ) -> None:
        self._schedule = schedule
        self._machine = machine
        self._life = machine.life
        self._delay_us = delay_us

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Run work later."""
        future: Future[Any] = Future()
        self._schedule.later_on(
            self._machine, self._life, self._delay_us(), self._run, future, work, args, options
        )
        return future

    def _run(
        self,
        future: Future[Any],
        work: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = work(*args, **options)
        except Exception as error:  # noqa: BLE001 (a thread hands on whatever was raised)
            future.set_exception(error)
        else:
            future.set_result(result)


class SimLoop(Process):
    """The loop of one life of a machine.

    `rate` is how fast the machine's clock runs, `delay_us` how long a thread takes to wake the
    loop.
    """

    def __init__(
        self,
        schedule: Schedule,
        machine: SimMachine,
        *,
        delay_us: Callable[[], int],
        rate: float = 1.0,
        wires: SimWires | None = None,
    ) -> None:
        self._schedule = schedule
        self._machine = machine
        self._life = machine.life
        self._delay_us = delay_us
        self._rate = rate
        self._wires = wires
        self._ready: deque[tuple[asyncio.Handle, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._task_count = 0
        self._tasks_max = _TASKS_MAX

    def run_ready(self) -> None:
        """Run what was called soon, until nothing is left."""
        ready = self._ready
        while ready:
            handle, callback, args = ready.popleft()
            if not handle.cancelled():
                callback(*args)

    def abandon(self) -> None:
        """Forget what was called soon, and end all tasks.

        They end now, the newest first. Left to the garbage collector, they would run their last
        words at a moment that no seed decides.
        """
        before = asyncio._get_running_loop()  # noqa: SLF001 (there may be none)
        asyncio._set_running_loop(self)  # noqa: SLF001 (there is no public one)
        while self._tasks:
            _close(self._tasks.pop())
        asyncio._set_running_loop(before)  # noqa: SLF001
        self._ready.clear()

    # What asyncio and the code under test call.

    def time(self) -> float:
        """Seconds on this machine's own clock."""
        return self._schedule.now_us * self._rate / 1e6

    def get_debug(self) -> bool:
        """Never: the simulation checks more than asyncio could."""
        return False

    def is_running(self) -> bool:
        """True while the life lasts."""
        return self._machine.is_on and self._machine.life == self._life

    def is_closed(self) -> bool:
        """True when the life is over."""
        return not self.is_running()

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None
    ) -> asyncio.Task[T]:
        """Run a coroutine."""
        self._task_count += 1
        task: asyncio.Task[T] = _SimTask(self._task_count, coro, loop=self, name=name)
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._tasks_max = _TASKS_MAX + 2 * len(self._tasks)
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call at the end of the present event."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((handle, callback, args))
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call when the loop has woken up."""
        handle = asyncio.Handle(callback, args, self, context)
        self._schedule.later_on(
            self._machine, self._life, self._delay_us(), _call, handle, callback, args
        )
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call after a time on this machine's own clock."""
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        # Never early: who looks at the clock then and waits again would do so without end.
        delay_us = max(0, ceil(delay * 1e6 / self._rate))
        self._schedule.later_on(self._machine, self._life, delay_us, _call, handle, callback, args)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a time of this machine's own clock."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run work in a thread."""
        assert executor is not None, "the machine's threads must be named"
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        host: str,
        port: int,
        *,
        ssl: None = None,
    ) -> SimServer:
        """Accept connections."""
        del ssl
        assert self._wires is not None, "this machine is not wired"
        return self._wires.listen(self._machine, protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        host: str,
        port: int,
        *,
        ssl: None = None,
    ) -> tuple[SimTransport, asyncio.BufferedProtocol]:
        """Reach another machine."""
        del ssl
        assert self._wires is not None, "this machine is not wired"
        return await self._wires.connect(self._machine, protocol_factory, host, port)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The handle says so itself when its time comes."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore what asyncio remarks about futures and tasks that a crash has orphaned."""


def _close(task: asyncio.Task[Any]) -> None:
    """End a coroutine where it waits; whatever it still wants to do fails."""
    work = task.get_coro()
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) != inspect.CORO_RUNNING:
        with suppress(BaseException):
            work.close()


def _call(handle: asyncio.Handle, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if not handle.cancelled():
        callback(*args)

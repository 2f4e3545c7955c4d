"""An event loop and threads in simulated time.

The loop does what replicas ask of one: futures, tasks, timers and work in threads; it has no
sockets. Work in a thread runs whole at a moment that the simulation chooses, and the loop hears of
its end at a later one. What is called soon runs at the end of the event that asked for it.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextvars import Context
from typing import Any, TypeVar

from penstock.testing.machine import Process, SimMachine
from penstock.testing.schedule import Schedule

T = TypeVar("T")


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
    ) -> None:
        self._schedule = schedule
        self._machine = machine
        self._life = machine.life
        self._delay_us = delay_us
        self._rate = rate
        self._ready: deque[tuple[asyncio.Handle, Callable[..., Any], tuple[Any, ...]]] = deque()

    def run_ready(self) -> None:
        """Run what was called soon, until nothing is left."""
        ready = self._ready
        while ready:
            handle, callback, args = ready.popleft()
            if not handle.cancelled():
                callback(*args)

    def abandon(self) -> None:
        """Forget what was called soon, also the tasks that have not begun."""
        for _, callback, _ in self._ready:
            task = getattr(callback, "__self__", None)
            if isinstance(task, asyncio.Task):
                _close_if_not_begun(task)
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
        return asyncio.Task(coro, loop=self, name=name)

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
        delay_us = max(0, int(delay * 1e6 / self._rate))
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

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The handle says so itself when its time comes."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore what asyncio remarks about futures and tasks that a crash has orphaned."""


def _close_if_not_begun(task: asyncio.Task[Any]) -> None:
    """Python warns of a coroutine that nobody ever ran, unless it is closed."""
    work = task.get_coro()
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()


def _call(handle: asyncio.Handle, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if not handle.cancelled():
        callback(*args)

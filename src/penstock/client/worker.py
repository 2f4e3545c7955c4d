"""Runs a program's functions over its tasks.

`TaskApp` collects functions by the type of task that they do; `Worker` leases tasks of these types,
as many as it has room for, runs them side by side and answers for each. Plain functions run in
threads, coroutines on the loop. Leases are renewed while a function runs. A function that raises
gives its task back with the error as the reason. A worker that is told to stop leases nothing more
and finishes what runs; tasks that arrive in that moment go back, which costs them no try.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.client.async_client import AsyncClient
from penstock.client.deliveries import Leased, Refusal
from penstock.client.subscriptions import AsyncLeaseKeeper
from penstock.client.tasks import Task
from penstock.errors import InvalidRequest, PenstockError

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

# A stop waits for the poll that is under way, which is why polls are short.
POLL_WAIT_S = 1.0
REASON_MAX = 1_000
_PAUSE_S = 1.0
# For a poll that is under way when the worker is told to stop; no less than it waits by itself.
_STOP_S = 2.0
# How long coroutines may take to end when they are cancelled.
_CANCEL_S = 5.0
_STOPPING = "the worker is stopping"


class TaskGivenUp(Exception):
    """Raised by a function: the task can never be done, and is not tried again."""


class TaskPostponed(Exception):
    """Raised by a function: the task is to be tried again after `delay_s`."""

    def __init__(self, delay_s: float, reason: str = "") -> None:
        super().__init__(reason or f"postponed for {delay_s:g} s")
        self.delay_s = delay_s


@dataclass(frozen=True, slots=True)
class _Function:
    call: Callable[..., Any]
    takes_task: bool
    is_coroutine: bool


class TaskApp:
    """The functions of a program, by the type of task that each does."""

    def __init__(self) -> None:
        self._functions: dict[str, _Function] = {}

    @property
    def types(self) -> list[str]:
        """All types that there is a function for."""
        return sorted(self._functions)

    def task(self, type: str | None = None) -> Callable[[F], F]:  # noqa: A002
        """Let the decorated function do tasks of a type, which is its own name unless told.

        It is called with the payload, and with the `Task` when it takes two arguments.
        """

        def register(function: F) -> F:
            name = function.__name__ if type is None else type
            if name in self._functions:
                raise InvalidRequest(f"two functions do tasks of type {name!r}")
            self._functions[name] = _Function(
                function, _takes_task(function), inspect.iscoroutinefunction(function)
            )
            return function

        return register

    async def run(self, task: Task, threads: ThreadPoolExecutor) -> None:
        """Do one task; raises what its function raises."""
        function = self._functions[task.type]
        arguments = (task.payload, task) if function.takes_task else (task.payload,)
        if function.is_coroutine:
            await function.call(*arguments)
        else:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(threads, _call, function.call, arguments)
            if inspect.isawaitable(result):
                # A decorator may hide that the function behind it is a coroutine.
                await result


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a plain function, in its thread."""
    try:
        return function(*arguments)
    except StopIteration as error:
        # A future cannot hold this one, and who waits for it would wait for ever.
        raise RuntimeError("the function raised StopIteration") from error


def _takes_task(function: Callable[..., Any]) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    required = [
        each
        for each in parameters
        if each.kind in kinds and each.default is inspect.Parameter.empty
    ]
    if not 1 <= len(required) <= 2:
        raise InvalidRequest(
            f"{function.__name__} takes {len(required)} arguments, not the payload, or the payload"
            " and the task"
        )
    return len(required) == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How many tasks a worker does side by side, and for how long it leases them."""

    concurrency: int = 10
    lease_s: float = 30.0
    grace_s: float = 30.0
    """How long tasks may go on after the worker was told to stop."""
    name: str = ""
    exits_at_end: bool = False
    """Whether the worker ends by itself when nothing is there to do."""

    def check(self) -> None:
        """Raise `InvalidRequest` when a setting makes no sense."""
        if not 1 <= self.concurrency <= 10_000:
            raise InvalidRequest(f"concurrency is {self.concurrency}, not 1..10000")
        if self.lease_s < 1:
            raise InvalidRequest(f"lease_s is {self.lease_s:g}, which is less than 1")


@dataclass(slots=True)
class WorkerCounts:
    """What a worker has done."""

    done: int = 0
    failed: int = 0
    returned: int = 0
    abandoned: int = 0
    """Tasks that did not end in time after the worker was told to stop; they come back."""


class Worker:
    """Does tasks until it is told to stop."""

    def __init__(
        self, app: TaskApp, client: AsyncClient, settings: WorkerSettings | None = None
    ) -> None:
        self._settings = settings or WorkerSettings()
        self._settings.check()
        if not app.types:
            raise InvalidRequest(
                "the application has no tasks; decorate a function with @app.task()"
            )
        self._app = app
        self._client = client
        self._keeper = AsyncLeaseKeeper(self._extend)
        self._running: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._is_ending = False
        self.counts = WorkerCounts()

    def stop(self) -> None:
        """Lease nothing more; `run` returns when what runs has ended."""
        self._stop.set()

    async def run(self) -> None:
        """Do tasks until `stop` is called."""
        threads = ThreadPoolExecutor(self._settings.concurrency, thread_name_prefix="task")
        try:
            while not self._stop.is_set():
                await self._wait_for_room()
                tasks = await self._lease()
                if tasks == [] and not self._running and self._settings.exits_at_end:
                    break
                await self._begin(tasks or [], threads)
            await self._finish()
        finally:
            self._is_ending = True
            for each in self._running:
                each.cancel()
            # Neither a coroutine that takes no notice nor a thread that does not end must keep the
            # worker; their tasks come back.
            if self._running:
                await asyncio.wait(self._running, timeout=_CANCEL_S)
            await self._keeper.close()
            threads.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_room(self) -> None:
        stopping = asyncio.ensure_future(self._stop.wait())
        while len(self._running) >= self._settings.concurrency and not self._stop.is_set():
            await asyncio.wait({*self._running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

    async def _lease(self) -> list[Task] | None:
        """Return tasks to do; None when nobody could tell whether there are any."""
        room = self._settings.concurrency - len(self._running)
        if room < 1:
            return None
        try:
            return await self._unless_stopped(
                self._client.tasks.lease(
                    self._app.types,
                    wait_s=POLL_WAIT_S,
                    count_max=room,
                    lease_s=self._settings.lease_s,
                    worker=self._settings.name,
                )
            )
        except PenstockError as error:
            if not error.retryable:
                raise
            logger.warning("no tasks can be leased: %s", error)
            await asyncio.sleep(_PAUSE_S)
            return None

    async def _unless_stopped(self, leasing: Coroutine[Any, Any, list[Task]]) -> list[Task] | None:
        """Wait for tasks; a stop does not wait for a node that is away or hangs."""
        answer = asyncio.ensure_future(leasing)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((answer, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await asyncio.wait((answer,), timeout=_STOP_S)
            return answer.result() if answer.done() else None
        finally:
            stopping.cancel()
            answer.cancel()
            await asyncio.wait((answer,))

    async def _begin(self, tasks: Sequence[Task], threads: ThreadPoolExecutor) -> None:
        self._keeper.hold(tasks, lease_s=self._settings.lease_s, owner=self)
        for task in tasks:
            if self._stop.is_set():
                await self._answer(task, self._client.tasks.give_back(task, reason=_STOPPING))
                self.counts.returned += 1
                continue
            running = asyncio.create_task(self._do(task, threads), name=f"task {task.id}")
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    async def _finish(self) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.grace_s)
        for each in self._running:
            logger.warning("%s did not end in time and will be tried again", each.get_name())
            self.counts.abandoned += 1

    async def _do(self, task: Task, threads: ThreadPoolExecutor) -> None:
        """Do one task and answer for it. Whatever its function raises is the task's failure."""
        try:
            await self._app.run(task, threads)
        except TaskGivenUp as error:
            await self._answer(task, self._client.reject(task, reason=_reason(error)))
        except TaskPostponed as error:
            await self._give_back(task, _reason(error), delay_s=error.delay_s)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # A function that exits or cancels itself has failed like any other: without an answer
            # its lease would be renewed for ever. Only the end of the worker comes from outside.
            if self._is_ending:
                raise
            logger.warning("task %s failed: %s", task.id, _reason(error), exc_info=error)
            await self._give_back(task, _reason(error), delay_s=None)
        else:
            await self._answer(task, self._client.tasks.ack(task))
            self.counts.done += 1
            return
        self.counts.failed += 1

    async def _give_back(self, task: Task, reason: str, *, delay_s: float | None) -> None:
        await self._answer(task, self._client.tasks.nack(task, reason=reason, delay_s=delay_s))

    async def _answer(self, task: Task, answering: Any) -> None:
        """Send an answer; one that is not accepted means that the task is tried again."""
        self._keeper.drop([task])
        try:
            await answering
        except PenstockError as error:
            logger.warning("the answer for task %s was not accepted: %s", task.id, error)

    async def _extend(self, tasks: Sequence[Leased], lease_s: float) -> list[Refusal[Leased]]:
        return await self._client.extend_batch(tasks, lease_s=lease_s)


def _reason(error: BaseException) -> str:
    """Return what nodes and people are told about a failure."""
    # Not str(), which may raise like any code of the program.
    text = str(traceback.TracebackException(type(error), error, None))
    if not isinstance(error, TaskGivenUp | TaskPostponed):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    # Text that was decoded leniently holds what cannot be written into a request.
    return text.encode(errors="replace").decode()[:REASON_MAX]

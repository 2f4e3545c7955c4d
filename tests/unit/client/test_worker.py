"""What a worker does with the tasks that it gets, above all when it is told to stop."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, cast

import msgspec
import pytest

from penstock.client import AsyncClient, Task, TaskApp, Worker, WorkerSettings
from penstock.errors import InvalidRequest, LeaseExpired, Unavailable


def task(number: int, *, attempt: int = 1) -> Task:
    return Task(
        id=f"work:0-{number}",
        type="work",
        payload=number,
        priority=4,
        attempt=attempt,
        max_retries=3,
        receipt=str(number),
        lease_until_ms=0,
        enqueued_ms=0,
        topic="tasks.work",
        group="workers",
    )


class FakeQueue:
    """Hands out batches of tasks, or raises, and remembers the answers."""

    def __init__(self, *batches: Sequence[Task] | Exception) -> None:
        self._batches = list(batches)
        self.asked: list[int] = []
        self.answers: list[tuple[str, str, str]] = []
        self.on_lease = lambda: None
        self.refusal: Exception | None = None

    async def lease(self, _types: Sequence[str], *, count_max: int, **_more: Any) -> list[Task]:
        self.asked.append(count_max)
        self.on_lease()
        await asyncio.sleep(0)
        batch = self._batches.pop(0) if self._batches else []
        if isinstance(batch, Exception):
            raise batch
        return list(batch)

    async def ack(self, done: Task) -> None:
        self.answers.append(("ack", done.id, ""))
        if self.refusal is not None:
            raise self.refusal

    async def nack(self, failed: Task, *, reason: str, delay_s: float | None) -> None:
        msgspec.json.encode(reason)
        self.answers.append(("nack", failed.id, reason))

    async def give_back(self, unbegun: Task, *, reason: str) -> None:
        self.answers.append(("give back", unbegun.id, reason))


class FakeClient:
    """As much of a client as a worker uses."""

    def __init__(self, queue: FakeQueue) -> None:
        self.tasks = queue


def worker_on(app: TaskApp, queue: FakeQueue, **settings: Any) -> Worker:
    client = cast("AsyncClient", FakeClient(queue))
    return Worker(app, client, WorkerSettings(**{"exits_at_end": True, **settings}))


def recording() -> tuple[TaskApp, list[int]]:
    app, seen = TaskApp(), list[int]()

    @app.task()
    async def work(payload: int) -> None:
        seen.append(payload)

    return app, seen


def test_no_more_tasks_are_leased_than_there_is_room_for() -> None:
    app, most = TaskApp(), [0, 0]

    @app.task()
    async def work(_payload: int) -> None:
        most[0] += 1
        most[1] = max(most)
        await asyncio.sleep(0.01)
        most[0] -= 1

    queue = FakeQueue([task(1), task(2)], [task(3)], [task(4)])

    async def scenario() -> None:
        await worker_on(app, queue, concurrency=2).run()

    asyncio.run(scenario())
    assert most[1] <= 2
    assert max(queue.asked) <= 2
    assert len(queue.answers) == 4


def test_tasks_that_arrive_while_it_stops_go_back_without_costing_a_try() -> None:
    app, seen = recording()
    queue = FakeQueue([task(1), task(2, attempt=4)])

    async def scenario() -> Worker:
        worker = worker_on(app, queue)
        queue.on_lease = worker.stop
        await worker.run()
        return worker

    worker = asyncio.run(scenario())
    assert seen == []
    reason = "the worker is stopping"
    assert queue.answers == [("give back", "work:0-1", reason), ("give back", "work:0-2", reason)]
    assert (worker.counts.done, worker.counts.returned) == (0, 2)


def test_a_stop_does_not_wait_for_a_node_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.client.worker._STOP_S", 0.01)
    app, seen = recording()
    queue = FakeQueue([task(1)])
    was_cancelled = []

    async def hang(_types: Sequence[str], **_more: Any) -> list[Task]:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            was_cancelled.append(True)
            raise
        return []

    async def scenario() -> None:
        worker = worker_on(app, queue)
        monkeypatch.setattr(queue, "lease", hang)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0.01)
        worker.stop()
        async with asyncio.timeout(30):
            await running

    asyncio.run(scenario())
    assert seen == []
    assert was_cancelled == [True]


def test_a_task_that_outlives_the_grace_is_abandoned_without_an_answer() -> None:
    app, release = TaskApp(), threading.Event()

    @app.task()
    def work(_payload: int) -> None:
        release.wait(30)

    queue = FakeQueue([task(1)])

    async def scenario() -> Worker:
        worker = worker_on(app, queue, concurrency=1, grace_s=0.01)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0.05)
        worker.stop()
        await running
        return worker

    worker = asyncio.run(scenario())
    release.set()
    assert worker.counts.abandoned == 1
    assert queue.answers == []


def test_an_answer_that_is_refused_does_not_end_the_worker() -> None:
    app, seen = recording()
    queue = FakeQueue([task(1)], [task(2)])
    queue.refusal = LeaseExpired("too late")

    async def scenario() -> None:
        await worker_on(app, queue).run()

    asyncio.run(scenario())
    assert seen == [1, 2]


class Unprintable(Exception):
    """An error whose text is code of the program, and fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        asyncio.CancelledError(),
        StopIteration(),
        GeneratorExit(),
        Unprintable(),
        ValueError("a lone \ud800"),
    ],
)
@pytest.mark.parametrize("is_coroutine", [True, False])
def test_a_function_that_exits_or_fails_in_an_odd_way_fails_alone(
    error: BaseException, caplog: pytest.LogCaptureFixture, *, is_coroutine: bool
) -> None:
    # Processes that share the tests cannot send each other a log with a lone surrogate.
    caplog.set_level(logging.CRITICAL)
    app, queue = TaskApp(), FakeQueue([task(1), task(2)])

    def work(payload: int) -> None:
        if payload == 1:
            raise error

    async def work_on_the_loop(payload: int) -> None:
        work(payload)

    app.task("work")(work_on_the_loop if is_coroutine else work)
    worker = worker_on(app, queue)
    asyncio.run(worker.run())

    assert {each[:2] for each in queue.answers} == {("nack", "work:0-1"), ("ack", "work:0-2")}
    assert (worker.counts.done, worker.counts.failed) == (1, 1)


def test_a_coroutine_that_cancels_itself_fails_alone() -> None:
    app, queue = TaskApp(), FakeQueue([task(1), task(2)])

    @app.task()
    async def work(payload: int) -> None:
        current = asyncio.current_task()
        if payload == 1 and current is not None:
            current.cancel()
        await asyncio.sleep(0)

    asyncio.run(worker_on(app, queue).run())

    assert {each[:2] for each in queue.answers} == {("nack", "work:0-1"), ("ack", "work:0-2")}


def test_a_coroutine_that_takes_no_notice_of_the_end_does_not_keep_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.client.worker._CANCEL_S", 0.01)
    app, queue = TaskApp(), FakeQueue([task(1)])
    release = asyncio.Event()

    @app.task()
    async def work(_payload: int) -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    async def scenario() -> Worker:
        worker = worker_on(app, queue, concurrency=1, grace_s=0.01)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0.05)
        worker.stop()
        async with asyncio.timeout(30):
            await running
        release.set()
        return worker

    assert asyncio.run(scenario()).counts.abandoned == 1


def test_a_coroutine_behind_a_plain_decorator_is_run_to_its_end() -> None:
    app, queue = TaskApp(), FakeQueue([task(1), task(2)])
    seen = []

    async def work(payload: int) -> None:
        await asyncio.sleep(0)
        seen.append(payload)
        if payload == 2:
            raise ValueError("two")

    @app.task("work")
    def decorated(payload: int) -> Coroutine[Any, Any, None]:
        return work(payload)

    asyncio.run(worker_on(app, queue).run())

    assert sorted(seen) == [1, 2]
    assert sorted(queue.answers) == [
        ("ack", "work:0-1", ""),
        ("nack", "work:0-2", "ValueError: two"),
    ]


def test_an_error_that_does_not_pass_ends_the_worker() -> None:
    app, _ = recording()

    async def scenario(error: Exception) -> None:
        await worker_on(app, FakeQueue(error)).run()

    with pytest.raises(InvalidRequest, match="no such type"):
        asyncio.run(scenario(InvalidRequest("no such type")))


def test_a_cluster_that_is_away_for_a_moment_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.client.worker._PAUSE_S", 0)
    app, seen = recording()

    async def scenario() -> None:
        await worker_on(app, FakeQueue(Unavailable("no leader"), [task(1)])).run()

    asyncio.run(scenario())
    assert seen == [1]


@pytest.mark.parametrize("settings", [{"concurrency": 0}, {"lease_s": 0.5}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    app, _ = recording()

    async def scenario() -> None:
        worker_on(app, FakeQueue(), **settings)

    with pytest.raises(InvalidRequest, match=r"is 0"):
        asyncio.run(scenario())

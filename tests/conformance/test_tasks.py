"""Tasks and workers on a running node: over HTTP, with the client, from the command line."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import (
    AsyncClient,
    Client,
    Task,
    TaskApp,
    TaskGivenUp,
    TaskPostponed,
    Worker,
    WorkerSettings,
)
from penstock.errors import InvalidRequest, LeaseExpired, MessageNotFound
from tests.http_calls import refusal
from tests.kafka_clients import unique, wait_until
from tests.processes import NodeProcess

JOBS = """
import time
from pathlib import Path

from penstock.client import TaskApp

app = TaskApp()


@app.task()
def greet(payload):
    print("hello", payload, flush=True)


@app.task()
def slow(payload):
    Path("started").touch()
    while not Path("go").exists():
        time.sleep(0.05)
    print("slow", payload, flush=True)
"""


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Client]:
    with Client(node.http_url) as opened:
        yield opened


def penstock(node: NodeProcess, *arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PENSTOCK_URL": node.http_url},
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def work_until(node: NodeProcess, app: TaskApp, done: Any, **settings: Any) -> Worker:
    """Run a worker until `done()` is true, and return it."""

    async def scenario() -> Worker:
        async with AsyncClient(node.http_url) as client:
            worker = Worker(app, client, WorkerSettings(**settings))
            running = asyncio.create_task(worker.run())
            async with asyncio.timeout(300):
                await asyncio.to_thread(wait_until, done, "the worker is through")
            worker.stop()
            await running
            return worker

    return asyncio.run(scenario())


def test_a_task_is_enqueued_leased_and_done(client: Client) -> None:
    kind = unique("email")
    task_id = client.tasks.enqueue(kind, {"to": ["anna"]}, priority=7, max_retries=5).id
    assert client.tasks.status(task_id).state == "queued"

    (task,) = client.tasks.lease([kind], wait_s=10, worker="w1")
    assert (task.id, task.payload, task.priority) == (task_id, {"to": ["anna"]}, 7)
    assert (task.attempt, task.max_retries) == (1, 5)
    wait_until(lambda: client.tasks.status(task_id).state == "leased", "the lease is committed")

    client.tasks.extend(task, lease_s=60)
    client.tasks.ack(task)
    assert client.tasks.status(task_id).state == "done"
    client.tasks.ack(task)
    with pytest.raises(LeaseExpired):
        client.tasks.nack(task)


def test_a_task_that_was_not_begun_costs_no_try(client: Client) -> None:
    kind = unique("email")
    client.tasks.enqueue(kind, "anna", max_retries=0)

    for _ in range(3):
        (task,) = client.tasks.lease([kind], wait_s=10)
        assert task.attempt == 1
        client.tasks.give_back(task, reason="closing time")


@pytest.mark.parametrize("payload", [None, "text", "5", 5, [1, {"a": None}], ""])
def test_a_payload_comes_back_as_it_was(client: Client, payload: object) -> None:
    kind = unique("echo")
    client.tasks.enqueue(kind, payload)

    (task,) = client.tasks.lease([kind], wait_s=10)

    assert task.payload == payload


def test_tasks_that_came_in_by_another_door_can_be_done(client: Client) -> None:
    kind = unique("raw")
    client.publish(f"tasks.{kind}", b"not json")
    client.publish(f"tasks.{kind}", b"\xff")

    payloads = []
    while len(payloads) < 2:
        for task in client.tasks.lease([kind], wait_s=10, count_max=2):
            payloads.append(task.payload)
            client.tasks.ack(task)

    assert sorted(payloads, key=str) == [b"\xff", "not json"]


def test_a_task_that_fails_keeps_its_last_error(client: Client) -> None:
    kind = unique("email")
    task_id = client.tasks.enqueue(kind, "x", max_retries=1).id
    for number in range(2):
        (task,) = client.tasks.lease([kind], wait_s=10)
        client.tasks.nack(task, reason=f"refused {number}", delay_s=0)

    wait_until(lambda: client.tasks.status(task_id).state == "failed", "it has failed")
    status = client.tasks.status(task_id)
    assert (status.attempts, status.last_error) == (2, "refused 1")
    wait_until(lambda: counts_of(client, kind) == (0, 1), "it is a dead letter")


def counts_of(client: Client, kind: str) -> tuple[int, int]:
    (stats,) = [each for each in client.tasks.stats() if each.type == kind]
    return stats.queued, stats.failed


def test_a_long_poll_ends_when_a_task_of_a_new_type_arrives(client: Client) -> None:
    kind = unique("late")
    found: list[Task] = []
    waiting = threading.Thread(target=lambda: found.extend(client.tasks.lease([kind], wait_s=30)))
    waiting.start()
    client.tasks.enqueue(kind, "x")
    waiting.join(120)

    assert [task.type for task in found] == [kind]


def test_a_mistyped_type_leaves_no_topic_behind(client: Client) -> None:
    kind = unique("typo")

    assert client.tasks.lease([kind], wait_s=0.2) == []

    assert f"tasks.{kind}" not in [each.name for each in client.topics()]
    assert kind not in [each.type for each in client.tasks.stats()]


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [
        ("POST", "/tasks", "no body"),
        ("GET", "/tasks?max=0", "'0', not a whole number in 1..1000"),
        ("GET", "/tasks?max=1001", "'1001', not a whole number in 1..1000"),
    ],
)
def test_a_mistake_is_refused_by_naming_it(
    node: NodeProcess, method: str, path: str, named: str
) -> None:
    status, _, message = refusal(node, method, path)

    assert status == 400
    assert named in message


def test_mistakes_are_told_with_their_value(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="type is 'a b'"):
        client.tasks.enqueue("a b", None)
    with pytest.raises(InvalidRequest, match="max_retries"):
        client.tasks.enqueue("email", None, max_retries=-1)
    with pytest.raises(MessageNotFound, match="'nobody'"):
        client.tasks.status("nobody")


def test_a_worker_runs_functions_and_coroutines_and_answers_for_each(
    node: NodeProcess, client: Client
) -> None:
    plain, on_loop, broken = unique("plain"), unique("loop"), unique("broken")
    app = TaskApp()
    seen: list[object] = []

    @app.task(plain)
    def do_plain(payload: object) -> None:
        seen.append((payload, threading.current_thread() is threading.main_thread()))

    @app.task(on_loop)
    async def do_on_loop(payload: object, task: Task) -> None:
        seen.append((payload, task.attempt))

    @app.task(broken)
    def break_down(payload: str) -> None:
        if payload == "never":
            raise TaskGivenUp("nobody can do this")
        raise ValueError("out of paper")

    client.tasks.enqueue(plain, 1)
    client.tasks.enqueue(on_loop, 2)
    never = client.tasks.enqueue(broken, "never").id
    later = client.tasks.enqueue(broken, "later").id
    worker = work_until(node, app, lambda: worker_is_through(client, never, later, seen))

    assert sorted(seen, key=str) == [(1, False), (2, 1)]
    assert (worker.counts.done, worker.counts.failed) == (2, 2)
    assert client.tasks.status(never).last_error == "nobody can do this"
    assert client.tasks.status(later).last_error == "ValueError: out of paper"
    assert client.tasks.status(later).state == "queued"


def worker_is_through(client: Client, never: str, later: str, seen: list[object]) -> bool:
    return (
        len(seen) == 2
        and client.tasks.status(never).state == "failed"
        and client.tasks.status(later).attempts == 1
    )


def test_a_function_can_ask_for_another_time(node: NodeProcess, client: Client) -> None:
    kind = unique("busy")
    app = TaskApp()
    attempts: list[int] = []

    @app.task(kind)
    async def wait_for_it(_payload: object, task: Task) -> None:
        attempts.append(task.attempt)
        if task.attempt == 1:
            raise TaskPostponed(0.1)

    task_id = client.tasks.enqueue(kind, None).id
    work_until(node, app, lambda: client.tasks.status(task_id).state == "done")

    assert attempts == [1, 2]


def test_a_worker_keeps_the_lease_of_a_task_that_takes_long(
    node: NodeProcess, client: Client
) -> None:
    def attempts(lease_s: float) -> list[int]:
        kind = unique("long")
        app = TaskApp()
        begun: list[int] = []

        @app.task(kind)
        async def take_long(_payload: object, task: Task) -> None:
            begun.append(task.attempt)
            # Real time is the subject here: more than twice the lease.
            await asyncio.sleep(2.5 * lease_s)

        task_id = client.tasks.enqueue(kind, None).id
        work_until(node, app, lambda: client.tasks.status(task_id).state == "done", lease_s=lease_s)
        return begun

    # A machine may be too slow to renew the first of these leases in time, but not the last.
    assert any(attempts(lease_s) == [1] for lease_s in (1.0, 3.0, 9.0))


def test_functions_that_cannot_be_called_are_refused() -> None:
    app = TaskApp()

    with pytest.raises(InvalidRequest, match="takes 0 arguments"):
        app.task()(lambda: None)
    app.task("twice")(print_one)
    with pytest.raises(InvalidRequest, match="two functions"):
        app.task("twice")(print_one)


def print_one(payload: object) -> None:
    print(payload)


def test_the_worker_command_finishes_what_runs_when_it_is_told_to_stop(
    fresh_node: NodeProcess, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    first = penstock(fresh_node, "task", "enqueue", "greet", '"anna"').strip()
    second = penstock(fresh_node, "task", "enqueue", "slow", "7").strip()
    worker = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "worker", "jobs:app", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PENSTOCK_URL": fresh_node.http_url},
        cwd=tmp_path,
    )
    wait_until((tmp_path / "started").exists, "the slow task runs")
    worker.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    out, _ = worker.communicate(timeout=300)

    assert worker.returncode == 0
    *said, counts = out.splitlines()
    assert sorted(said) == ["hello anna", "slow 7"]
    assert json.loads(counts) == {"done": 2, "failed": 0, "returned": 0, "abandoned": 0}
    for task_id in (first, second):
        assert (
            json.loads(penstock(fresh_node, "task", "status", task_id, "--json"))["state"] == "done"
        )


def test_a_second_ctrl_c_ends_the_worker_command_whatever_runs(
    fresh_node: NodeProcess, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    penstock(fresh_node, "task", "enqueue", "slow", "7")
    worker = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "worker", "jobs:app"],
        env={**os.environ, "PENSTOCK_URL": fresh_node.http_url},
        cwd=tmp_path,
    )
    wait_until((tmp_path / "started").exists, "the slow task runs")
    worker.send_signal(signal.SIGINT)
    # The handler of the first one is there until it has run.
    wait_until(lambda: worker.poll() is not None or interrupt(worker), "the worker has ended")

    assert worker.wait(timeout=300) == 130
    assert not (tmp_path / "go").exists()


def interrupt(worker: subprocess.Popen[bytes]) -> bool:
    worker.send_signal(signal.SIGINT)
    return False


def test_tasks_are_seen_from_the_command_line(node: NodeProcess) -> None:
    kind = unique("seen")
    task_id = penstock(node, "task", "enqueue", kind, "not json", "--delay", "1h").strip()

    assert "is scheduled" in penstock(node, "task", "status", task_id)
    queued = penstock(node, "task", "enqueue", kind, "--max-retries", "0").strip()
    listed = json.loads(penstock(node, "task", "list", "--type", kind, "--json"))
    assert [(each["id"], each["state"]) for each in listed] == [(queued, "queued")]
    assert kind in penstock(node, "task", "stats")


@pytest.mark.parametrize("name", ["nope:app", "json:nope", "json:dumps", "jobs"])
def test_an_application_that_is_none_is_a_usage_error(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "worker", name], capture_output=True, text=True
    )

    assert done.returncode == 2
    assert "MODULE:APP" in done.stderr


def test_an_application_that_fails_on_its_way_in_shows_where(tmp_path: Path) -> None:
    (tmp_path / "broken_jobs.py").write_text("import os\nos.no_such_name\n")

    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "worker", "broken_jobs:app"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )

    assert done.returncode == 1
    assert 'broken_jobs.py", line 2' in done.stderr


def test_a_payload_of_another_door_that_is_nested_too_deeply_is_text(
    node: NodeProcess, client: Client
) -> None:
    kind = unique("deep")
    deep = "[" * 100_000 + "]" * 100_000
    client.tasks.enqueue(kind, 1)
    client.publish(f"tasks.{kind}", deep)

    leased = client.tasks.lease([kind], count_max=2, wait_s=10)

    assert [each.payload for each in leased] == [1, deep]

"""A Celery worker on `sqs://`, unmodified."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.kafka_clients import wait_until
from tests.processes import NodeProcess

STOP_DEADLINE_S = 120


def test_a_celery_worker_runs_tasks_and_retries_them(node: NodeProcess, tmp_path: Path) -> None:
    broker = f"sqs://key:secret@127.0.0.1:{node.http_port}//"
    os.environ["CELERY_BROKER"] = broker
    from tests.conformance.celery_tasks import app, note

    app.conf.broker_url = broker
    done = tmp_path / "done"
    done.mkdir()
    command = [
        *(sys.executable, "-m", "celery", "-A", "tests.conformance.celery_tasks", "worker"),
        *("--pool", "solo", "--loglevel", "INFO", "--without-gossip", "--without-mingle"),
    ]
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ})
        try:
            for number in range(3):
                note.delay(str(done), f"plain{number}", 0)
            note.delay(str(done), "stubborn", 2)
            expected = {"plain0-0", "plain1-0", "plain2-0"}
            expected |= {f"stubborn-{attempt}" for attempt in range(3)}
            wait_until(
                lambda: {path.name for path in done.iterdir()} == expected, "all tasks to be done"
            )
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(STOP_DEADLINE_S)

"""A Celery application as its users write it; only the broker's address is Penstock's."""

import os
from pathlib import Path

from celery import Celery

app = Celery("orders", broker=os.environ.get("CELERY_BROKER", "sqs://"))
app.conf.update(
    broker_transport_options={
        "is_secure": False,
        "region": "us-east-1",
        "wait_time_seconds": 2,
        "polling_interval": 0.1,
    },
    task_default_queue="celery-orders",
    worker_enable_remote_control=False,
)


@app.task(bind=True, max_retries=3, default_retry_delay=1)  # type: ignore[untyped-decorator]
def note(self, directory: str, name: str, failures: int) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Leave a file for each attempt; fail as often as asked."""
    attempt: int = self.request.retries
    (Path(directory) / f"{name}-{attempt}").touch()
    if attempt < failures:
        raise self.retry(exc=RuntimeError("not yet"))

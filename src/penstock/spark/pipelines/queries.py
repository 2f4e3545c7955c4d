"""The queries of a running pipeline: started together, watched, and stopped together.

A query that fails ends the pipeline with one error. Only what a busy machine does to Spark's Python
processes is tried again from the checkpoint, for some minutes: Spark gives a process ten seconds
to start, and does not try again itself. To stop is to let the micro-batches that are under way end,
for a while; what is cut short is repeated at the next start.
"""

import logging
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pyspark.errors import PySparkException

from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.spark.failures import is_passing, told_error
from penstock.spark.pipelines.progress import PipelineProgress, QueryWatch, sum_up

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK_AGAIN_S = 0.25
START_WAIT_S = 15.0
# Supervisors are known to kill what has not ended after half a minute.
STOP_WAIT_S = 15.0
RESTART_PAUSE_S = 1.0
# How long no query may have done anything before such a failure counts.
RESTART_PATIENCE_S = 180.0
_log = logging.getLogger("penstock.spark")


class Queries:
    """Runs one query for each writer while it is entered."""

    def __init__(self, writers: Mapping[str, "DataStreamWriter"]) -> None:
        self._writers = writers
        self._queries: dict[str, StreamingQuery] = {}
        self._watches = {name: QueryWatch() for name in writers}
        self._well_s = SystemClock().steady_s()

    def __enter__(self) -> Self:
        try:
            for name in self._writers:
                self._start(name)
        except PenstockError:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def watch(
        self, is_stopping: Callable[[], bool], show: Callable[[PipelineProgress], None]
    ) -> PipelineProgress:
        """Wait for the end, showing progress; raise what has ended a query.

        What a query raises because it is cut short is not looked at.
        """
        while not is_stopping():
            is_over = not any(query.isActive for query in self._queries.values())
            is_restarted = self._look_after()
            show(sum_up(self._watches))
            if is_over and not is_restarted:
                return sum_up(self._watches)
            time.sleep(LOOK_AGAIN_S)
        self._settle()
        for name, query in self._queries.items():
            self._watches[name].look(query)
        progress = sum_up(self._watches)
        show(progress)
        return progress

    def _look_after(self) -> bool:
        """See how far queries are, and start again what may be; tell whether there was any."""
        is_restarted = False
        for name, query in list(self._queries.items()):
            if self._watches[name].look(query):
                self._well_s = SystemClock().steady_s()
            if (error := query.exception()) is not None:
                self._restart(name, error)
                is_restarted = True
        return is_restarted

    def _start(self, name: str) -> None:
        """Start a query, and wait until it begins: processes that start together start slowly."""
        query = self._queries[name] = self._started(name)
        clock = SystemClock()
        deadline_s = clock.steady_s() + START_WAIT_S
        while query.isActive and query.status["message"].startswith("Initializing"):
            if clock.steady_s() >= deadline_s:
                break
            time.sleep(LOOK_AGAIN_S / 10)

    def _started(self, name: str) -> "StreamingQuery":
        """Start a query; on a Connect server that starts a process of Python, too."""
        while True:
            try:
                return self._writers[name].start()
            except PySparkException as error:
                self._bear(f"the query of {name} does not start", error)

    def _restart(self, name: str, error: Exception) -> None:
        """Start a query again after a failure that passes; raise any other."""
        self._bear(f"the query of {name} failed", error)
        self._start(name)

    def _bear(self, what: str, error: Exception) -> None:
        """Pause after a failure that passes; raise any other, and one that lasts."""
        now_s = SystemClock().steady_s()
        if not is_passing(error) or now_s - self._well_s > RESTART_PATIENCE_S:
            raise PenstockError(f"{what}: {told_error(error)}") from None
        _log.warning("%s, and is started again: %s", what, told_error(error))
        time.sleep(RESTART_PAUSE_S)

    def _settle(self) -> None:
        """Stop each query when it has done what it works on, or where it is after a while.

        A query that is behind begins the next micro-batch at once, which is then cut short.
        """
        clock = SystemClock()
        deadline_s = clock.steady_s() + STOP_WAIT_S
        left = [(query, _epoch_of(query)) for query in self._queries.values()]
        while left:
            is_late = clock.steady_s() >= deadline_s
            for query, epoch in list(left):
                if is_late or not _works_on(query, epoch):
                    query.stop()
                    left.remove((query, epoch))
            time.sleep(LOOK_AGAIN_S / 10)

    def _stop(self) -> None:
        for query in self._queries.values():
            query.stop()


def _works_on(query: "StreamingQuery", epoch: int | None) -> bool:
    """True while the micro-batch after an epoch has begun and has not ended."""
    return query.isActive and query.status["isTriggerActive"] and _epoch_of(query) == epoch


def _epoch_of(query: "StreamingQuery") -> int | None:
    last: Any = query.lastProgress
    return None if last is None else int(last["batchId"])

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
from typing import TYPE_CHECKING, Self

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
STOP_WAIT_S = 30.0
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
        """Wait for the end, showing progress; raise what has ended a query."""
        while True:
            is_asked = is_stopping()
            if is_asked:
                self._settle()
            is_over = is_asked or not any(query.isActive for query in self._queries.values())
            for name, query in list(self._queries.items()):
                if self._watches[name].look(query):
                    self._well_s = SystemClock().steady_s()
                if (error := query.exception()) is not None:
                    self._restart(name, error)
                    is_over = is_asked
            progress = sum_up(self._watches)
            show(progress)
            if is_over:
                return progress
            time.sleep(LOOK_AGAIN_S)

    def _start(self, name: str) -> None:
        """Start a query, and wait until it begins: processes that start together start slowly."""
        try:
            query = self._queries[name] = self._writers[name].start()
        except PySparkException as error:
            raise PenstockError(
                f"the query of {name} does not start: {told_error(error)}"
            ) from None
        clock = SystemClock()
        deadline_s = clock.steady_s() + START_WAIT_S
        while query.isActive and query.status["message"].startswith("Initializing"):
            if clock.steady_s() >= deadline_s:
                break
            time.sleep(LOOK_AGAIN_S / 10)

    def _restart(self, name: str, error: Exception) -> None:
        """Start a query again after a failure that passes; raise any other."""
        now_s = SystemClock().steady_s()
        if not is_passing(error) or now_s - self._well_s > RESTART_PATIENCE_S:
            raise PenstockError(f"the query of {name} failed: {told_error(error)}")
        _log.warning("the query of %s is started again: %s", name, told_error(error))
        time.sleep(RESTART_PAUSE_S)
        self._start(name)

    def _settle(self) -> None:
        """Stop each query between two micro-batches, or where it is when that takes too long."""
        clock = SystemClock()
        deadline_s = clock.steady_s() + STOP_WAIT_S
        for query in self._queries.values():
            while query.isActive and query.status["isTriggerActive"]:
                if clock.steady_s() >= deadline_s:
                    break
                time.sleep(LOOK_AGAIN_S / 10)
            query.stop()

    def _stop(self) -> None:
        for query in self._queries.values():
            query.stop()

"""Archives all topics that want it: one query for each, in one Spark session.

A query that fails is told of and started again after a while, from where the archive ends: a broker
that is away, another job that was faster, a topic that was created anew. Topics whose archive is
enabled or disabled meanwhile are taken up and let go.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client import ArchivedTopic, Client
from penstock.clock import SystemClock
from penstock.errors import InvalidRequest, PenstockError, Unavailable
from penstock.spark.archive_compaction import Compacted, compact_archive
from penstock.spark.archive_status import ArchiveStatus, archive_status
from penstock.spark.archive_table import ArchiveLocation, ArchiveTable
from penstock.spark.archiving import EPOCH_BYTES, ArchiveJob
from penstock.spark.failures import is_passing, told_error

LOOK_AGAIN_S = 1.0
TOPICS_LOOK_S = 30.0
# Of a run that ends by itself. To begin anew is safe: the table knows what it holds.
ATTEMPTS_MAX = 3
START_PATIENCE_S = 180.0
RESTART_PAUSE_S = 5.0
RESTART_PAUSE_S_MAX = 120.0
COMPACT_INTERVAL_S = 600.0
VACUUM_INTERVAL_S = 24 * 3600.0
_log = logging.getLogger("penstock.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveServiceSettings:
    """What is archived, for which cluster, and how often."""

    bootstrap: str
    url: str | Sequence[str]
    topics: tuple[str, ...] = ()
    storage: tuple[tuple[str, str], ...] = ()
    every_s: float = 60.0
    epoch_bytes: int = EPOCH_BYTES


@dataclass(slots=True)
class _Running:
    """A topic's job, and its query while that runs."""

    job: ArchiveJob
    query: StreamingQuery | None = None
    start_at_s: float = 0.0
    pause_s: float = RESTART_PAUSE_S
    failure: PenstockError | None = None


@dataclass(slots=True)
class ArchiveService:
    """Runs archive jobs in a session; `show` is told how far they are."""

    spark: SparkSession
    settings: ArchiveServiceSettings
    show: Callable[[str], None] = lambda _text: None
    _running: dict[ArchivedTopic, _Running] = field(default_factory=dict)
    _clock: SystemClock = field(default_factory=SystemClock)
    _looked_s: float = float("-inf")
    _compacted_s: float = float("-inf")
    _vacuumed_s: float = float("-inf")

    def run_once(self, is_stopping: Callable[[], bool] = lambda: False) -> list[ArchiveStatus]:
        """Archive what is there now and compact, unless stopped; raises the first failure."""
        jobs = [self._job(each) for each in self._wanted()]
        queries = [self._started(each) for each in jobs]
        for job, query in zip(jobs, queries, strict=True):
            self._finish(job, query, is_stopping)
            if not is_stopping():
                self._compact(job)
        return list(self._statuses())

    def _finish(
        self, job: ArchiveJob, query: StreamingQuery, is_stopping: Callable[[], bool]
    ) -> None:
        """Wait for the end of a query; one that Spark failed, or that may pass, begins anew."""
        for attempts_left in reversed(range(ATTEMPTS_MAX)):
            try:
                while not self._has_ended(query):
                    if is_stopping():
                        query.stop()
                        return
                    self.show(_shown(self._statuses()))
                return
            except PenstockError as error:
                is_final = type(error) is not PenstockError and not error.retryable
                if is_final or not attempts_left:
                    raise
                self.show(f"{job.archive.topic}: {error}; starting again")
                query = self._started(job)

    def _started(self, job: ArchiveJob) -> StreamingQuery:
        """Start a query that ends by itself; a busy machine is given some time."""
        deadline_s = self._clock.steady_s() + START_PATIENCE_S
        while True:
            try:
                return job.start(self.spark, every_s=None)
            except PySparkException as error:
                if not is_passing(error) or self._clock.steady_s() >= deadline_s:
                    raise told_error(error) from None
                self.show(f"{job.archive.topic}: {told_error(error)}; starting again")

    def run(self, is_stopping: Callable[[], bool]) -> list[ArchiveStatus]:
        """Archive until `is_stopping`; a micro-batch under way is given up, and comes again.

        Its files are left behind, under names that no version of the table knows; one that is being
        committed is waited for.
        """
        try:
            while not is_stopping():
                self._step(is_stopping)
                time.sleep(LOOK_AGAIN_S)
        finally:
            for each in self._running.values():
                _stop(each)
        return self._last_statuses()

    def _last_statuses(self) -> list[ArchiveStatus]:
        """Return how far archives are; a cluster that is away keeps no service from ending."""
        try:
            return list(self._statuses())
        except Unavailable as error:
            _log.warning("how far archives are is not known: %s", error)
            return []

    def _step(self, is_stopping: Callable[[], bool]) -> None:
        now_s = self._clock.steady_s()
        if now_s - self._looked_s >= TOPICS_LOOK_S:
            self._looked_s = now_s
            self._follow_topics()
        for each in self._running.values():
            self._look_after(each, now_s)
        if now_s - self._compacted_s >= COMPACT_INTERVAL_S:
            self._compacted_s = now_s
            self._tidy(now_s, is_stopping)

    def _follow_topics(self) -> None:
        """Take up topics that are archived by now, and let go of those that are not any more."""
        try:
            wanted = self._wanted()
            self.show(_shown(self._statuses()))
        except (InvalidRequest, Unavailable) as error:
            self.show(str(error))
            return
        for gone in self._running.keys() - set(wanted):
            _stop(self._running.pop(gone))
        for topic in wanted:
            self._running.setdefault(topic, _Running(self._job(topic)))

    def _look_after(self, running: _Running, now_s: float) -> None:
        if running.query is not None and running.query.isActive:
            return
        if running.query is not None:
            failure = running.query.exception()
            running.query = None
            self._note(running, now_s, failure or Unavailable("the query ended"))
        elif now_s >= running.start_at_s:
            try:
                running.query = running.job.start(self.spark, every_s=self.settings.every_s)
            except (PenstockError, PySparkException) as error:
                self._note(running, now_s, error)

    def _note(self, running: _Running, now_s: float, error: Exception) -> None:
        running.failure = told_error(error)
        running.start_at_s = now_s + running.pause_s
        running.pause_s = min(2 * running.pause_s, RESTART_PAUSE_S_MAX)
        topic = running.job.archive.topic
        _log.error("archive of topic %s stopped: %s", topic, running.failure)
        self.show(f"{topic}: {running.failure}; starting again")

    def _has_ended(self, query: StreamingQuery) -> bool:
        try:
            return bool(query.awaitTermination(1))
        except PySparkException as error:
            raise told_error(error) from None

    def _wanted(self) -> list[ArchivedTopic]:
        with Client(self.settings.url) as client:
            archives = client.archives.list()
            known = {each.topic: each for each in archives}
            for topic in self.settings.topics:
                if topic not in known:
                    # An unknown topic is told as such.
                    client.archives.get(topic)
                    raise InvalidRequest(
                        f"topic {topic} has no archive; `penstock archive enable {topic} --to PATH`"
                        " makes one"
                    )
        return [known[topic] for topic in self.settings.topics] or archives

    def _job(self, archive: ArchivedTopic) -> ArchiveJob:
        return ArchiveJob(
            bootstrap=self.settings.bootstrap,
            url=self.settings.url,
            archive=archive,
            storage=self.settings.storage,
            epoch_bytes=self.settings.epoch_bytes,
        )

    def _tidy(self, now_s: float, is_stopping: Callable[[], bool]) -> None:
        is_vacuum_due = now_s - self._vacuumed_s >= VACUUM_INTERVAL_S
        for each in self._running.values():
            if is_stopping():
                return
            try:
                self._compact(each.job)
                if is_vacuum_due:
                    self._vacuumed_s = now_s
                    ArchiveTable.open(each.job.location).vacuum()
            except PenstockError as error:
                _log.warning("an archive was not tidied: %s", error)

    def _compact(self, job: ArchiveJob) -> Compacted:
        return compact_archive(ArchiveTable.open(job.location), job.topic)

    def _statuses(self) -> Iterator[ArchiveStatus]:
        yield from archive_statuses(
            self.settings.url, self.settings.topics, dict(self.settings.storage)
        )


def archive_statuses(
    url: str | Sequence[str], topics: Sequence[str] = (), storage: dict[str, str] | None = None
) -> list[ArchiveStatus]:
    """Look at the archives of some topics, or of all that have one."""
    with Client(url) as client:
        names = topics or [each.topic for each in client.archives.list()]
        states = [client.archives.get(each) for each in names]
    for state in states:
        if not state.path:
            raise InvalidRequest(f"topic {state.topic} has no archive")
    return [archive_status(each, ArchiveLocation(each.path, storage or {})) for each in states]


def _shown(statuses: Sequence[ArchiveStatus] | Iterator[ArchiveStatus]) -> str:
    told = [f"{each.topic} {each.lag} behind" for each in statuses]
    return "archiving " + (", ".join(told) or "nothing: no topic has an archive")


def _stop(running: _Running) -> None:
    if running.query is not None and running.query.isActive:
        running.query.stop()
        running.query = None

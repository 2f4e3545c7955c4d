"""Stages record batches from an executor, over HTTP, and commits them from the driver.

A few requests are on their way while the next batches are made; batches are numbered, so that it
does not matter in which order they come. Requests go to the leaders of their partitions, as far as
these are known, and any node hands them on.
"""

import logging
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache

from pyspark.sql.datasource import WriterCommitMessage

from penstock.client import ClusterAdmin, ClusterNode, StagedPart, StagedWriter, StageName
from penstock.errors import PenstockError, Unavailable
from penstock.ids import TopicPartition
from penstock.spark.brokers import brokers_of
from penstock.spark.building import BuiltBatch
from penstock.spark.sink_options import SinkOptions

_THREADS = 3
_WAITING_MAX = 6
# What is not dropped expires; a query that has failed is not held up for it.
_ABORT_PATIENCE_MS = 5_000

_log = logging.getLogger("penstock.spark")


@dataclass
class StagedTask(WriterCommitMessage):
    """What one task has staged, for the driver's commit."""

    name: StageName
    task: int
    batches: Mapping[TopicPartition, int] = field(default_factory=dict)


class TaskStage:
    """Stages the batches of one task."""

    def __init__(self, options: SinkOptions, name: StageName, task: int) -> None:
        self._name = name
        self._task = task
        self._options = options
        self._brokers = brokers_of(options.bootstrap, options.request_wait_ms / 1000)
        self._writers: dict[str, StagedWriter] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="stage")
        self._waiting: deque[Future[bool]] = deque()
        self._counts: Counter[TopicPartition] = Counter()

    def send(self, batch: BuiltBatch) -> None:
        """Stage a batch; returns when few enough are on their way."""
        while len(self._waiting) >= _WAITING_MAX:
            self._waiting.popleft().result()
        number = self._counts[batch.place]
        self._counts[batch.place] += 1
        writer = self._writer_for(batch.place)
        staging = self._threads.submit(
            writer.stage, self._name, batch.place, number, bytes(batch.data)
        )
        self._waiting.append(staging)

    def _writer_for(self, place: TopicPartition) -> StagedWriter:
        """Return a client that asks the leader of a partition first, if it is known."""
        try:
            leader = str(self._brokers.leader_of(place))
        except PenstockError:
            leader = ""
        url = self._options.nodes.get(leader, self._options.urls[0])
        if url not in self._writers:
            others = [each for each in self._options.urls if each != url]
            self._writers[url] = new_staged_writer(self._options, (url, *others))
        return self._writers[url]

    def finish(self) -> StagedTask:
        """Wait until everything is staged, and say what."""
        while self._waiting:
            self._waiting.popleft().result()
        return StagedTask(self._name, self._task, dict(self._counts))

    def close(self) -> None:
        """Let go of threads and connections."""
        self._threads.shutdown(cancel_futures=True)
        for writer in self._writers.values():
            writer.close()


def new_staged_writer(options: SinkOptions, urls: Sequence[str]) -> StagedWriter:
    """Return a client that is as patient as the options say."""
    return StagedWriter(
        urls,
        wait_s=options.request_wait_ms / 1000,
        retry_s=options.patience_ms / 1000,
    )


def new_run() -> str:
    """Return a name for one attempt of a driver, which no other has."""
    return uuid.uuid4().hex


def find_nodes(options: SinkOptions) -> dict[str, str]:
    """Return the HTTP addresses of nodes by their Kafka addresses, as far as both are for us.

    Where addresses were given, for instance that of a proxy, no others are used.
    """
    found = _nodes_at(options.urls, options.request_wait_ms / 1000)
    return {kafka: url for kafka, url in found.items() if options.allows(url)}


@cache
def _nodes_at(urls: tuple[str, ...], wait_s: float) -> dict[str, str]:
    """Ask once in the life of a process: it spares a way and decides nothing."""
    for url in urls:
        try:
            return {node.kafka: _url_of(node) for node in ClusterAdmin(url, wait_s=wait_s).nodes()}
        except Unavailable as error:
            _log.info("nodes are not known: %s", error)
    return {}


def _url_of(node: ClusterNode) -> str:
    return f"http://{node.kafka.rpartition(':')[0]}:{node.http_port}"


def commit_tasks(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Publish what the tasks of a run have staged; returns when all of it is published."""
    staged = _staged(messages)
    if not staged:
        return
    name = staged[0].name
    writer = new_staged_writer(options, options.urls)
    try:
        writer.commit(name.home, name.writer, name.epoch, name.run, _parts(staged))
    finally:
        writer.close()


def abort_tasks(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Drop what the tasks of a run have staged, as far as they have told and a node listens."""
    staged = _staged(messages)
    if not staged:
        return
    name = staged[0].name
    writer = new_staged_writer(replace(options, patience_ms=_ABORT_PATIENCE_MS), options.urls)
    try:
        writer.abort(name.home, name.writer, name.epoch, name.run, _parts(staged))
    except PenstockError as error:
        _log.warning("what was staged is left to expire: %s", error)
    finally:
        writer.close()


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
    """Return the tasks in their order, in which their rows are published."""
    staged = [each for each in messages if isinstance(each, StagedTask)]
    return sorted(staged, key=lambda each: each.task)


def _parts(staged: Sequence[StagedTask]) -> list[StagedPart]:
    stages: dict[TopicPartition, list[tuple[str, int]]] = defaultdict(list)
    for each in staged:
        for place, count in each.batches.items():
            stages[place].append((each.name.stage, count))
    return [StagedPart(place, stages[place]) for place in sorted(stages)]

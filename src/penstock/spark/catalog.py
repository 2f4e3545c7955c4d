"""What the cluster holds, as the driver asks for it: partitions, offsets, times, and progress.

Whatever may pass is retried for as long as the settings say, because one exception ends a query.
The first contact is given up sooner: an address that is wrong is not put right by waiting.
"""

import importlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import PenstockError, TopicNotFound, Unavailable
from penstock.ids import TopicPartition
from penstock.spark.brokers import EARLIEST, LATEST, brokers_of
from penstock.spark.options import Selection, SourceOptions
from penstock.spark.ranges import RecordRange, place_of
from penstock.spark.retries import retrying

if TYPE_CHECKING:
    from penstock.client import Groups
    from penstock.spark.history import ArchivePlace

CLIENT_MODULE = "penstock.client"
FETCHING_MODULE = "penstock.spark.fetching"
FIRST_CONTACT_WAIT_S = 10.0
COMMIT_WAIT_S = 5.0

T = TypeVar("T")
_log = logging.getLogger("penstock.spark")


class Catalog:
    """Asks the cluster; connects at the first question."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._brokers = brokers_of(options.bootstrap, options.fetch.request_wait_ms / 1000)
        self._has_answered = False
        self._standing = ""
        self._groups: Groups | None = None

    def note_standing(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Remember where a query stands, for errors to name."""
        if offsets:
            place = min(offsets)
            others = f" and {len(offsets) - 1} more partitions" if len(offsets) > 1 else ""
            self._standing = place_of(place, offsets[place]) + others

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that are wanted, in order; one that does not exist raises."""
        selection = self._options.selection
        held = self._ask(lambda: self._brokers.partitions(_named(selection)))
        check_chosen(selection, held)
        return chosen_partitions(selection, held)

    def remaining_partitions(self) -> list[TopicPartition]:
        """Return those of the wanted partitions that exist now."""
        held = self._ask(lambda: self._brokers.partitions(None))
        return chosen_partitions(self._options.selection, held)

    def ids_nowait(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        """Return the ids of topics as they were when partitions were last asked for."""
        return self._brokers.ids_nowait({place.topic for place in partitions})

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that each partition holds."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last one of each partition."""
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time in each partition; None: there is none."""
        # Times before 1970 would be taken for requests of another kind.
        times_ms = {place: max(time_ms, 0) for place, time_ms in times_ms.items()}
        found = self._offsets(times_ms)
        return {place: None if offset < 0 else offset for place, offset in found.items()}

    def bytes_per_offset(self, records: RecordRange) -> float:
        """Return how many bytes an offset takes, as stored, by a sample."""
        # Most of those who plan never fetch, and do without the compiled loops.
        fetching = importlib.import_module(FETCHING_MODULE)
        size: float = fetching.bytes_per_offset(
            self._options.bootstrap, records, self._options.fetch
        )
        return size

    def archive_of(self, topic: str) -> "ArchivePlace | None":
        """Return where older records of a topic are, when these are read, too."""
        del topic
        return None

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit progress for those who watch the lag; a failure is logged and no more."""
        try:
            if self._groups is None:
                self._groups = _open_groups(self._options.bootstrap)
            self._groups.commit(group, offsets)
        except PenstockError as error:
            _log.warning("progress of group %s was not committed: %s", group, error)

    def _offsets(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not times_ms:
            return {}
        is_committed_only = self._options.fetch.is_committed_only
        return self._ask(
            lambda: self._brokers.offsets(times_ms, is_committed_only=is_committed_only)
        )

    def _ask(self, question: Callable[[], T]) -> T:
        patience_s = self._options.fetch.patience_ms / 1000
        if not self._has_answered:
            patience_s = min(patience_s, FIRST_CONTACT_WAIT_S)
        try:
            answer = retrying(question, self._brokers.forget_leaders, patience_s)
        except Unavailable as error:
            what = self._standing or _described(self._options.selection)
            raise type(error)(f"{what}: {error}") from None
        self._has_answered = True
        return answer


def _open_groups(bootstrap: str) -> "Groups":
    # Most processes that plan commit nothing: these do without the client.
    client = importlib.import_module(CLIENT_MODULE)
    groups: Groups = client.Groups(client.Admin(client.Connection(bootstrap, COMMIT_WAIT_S)))
    return groups


def _named(selection: Selection) -> list[str] | None:
    if selection.pattern is not None:
        return None
    return sorted({*selection.topics, *(place.topic for place in selection.partitions)})


def _described(selection: Selection) -> str:
    topics = _named(selection)
    if topics is None:
        return f"topics that match {selection.pattern}"
    return f"topic{'s' if len(topics) > 1 else ''} {', '.join(topics)}"


def check_chosen(selection: Selection, held: Mapping[str, list[int]]) -> None:
    """Raise when a partition that is wanted by its number is not there."""
    for place in selection.partitions:
        if place.partition not in held[place.topic]:
            raise TopicNotFound(
                f"topic {place.topic} has no partition {place.partition};"
                f" it has {len(held[place.topic])} partitions"
            )


def chosen_partitions(selection: Selection, held: Mapping[str, list[int]]) -> list[TopicPartition]:
    """Return those of the partitions that are there which are wanted, in order."""
    existing = [
        TopicPartition(topic, partition)
        for topic, partitions in sorted(held.items())
        for partition in partitions
    ]
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        return [place for place in existing if pattern.fullmatch(place.topic)]
    if selection.partitions:
        return [place for place in existing if place in selection.partitions]
    return [place for place in existing if place.topic in selection.topics]

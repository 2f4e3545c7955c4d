"""Writes that are staged first and published together, over HTTP.

Everything here can be repeated without harm, and is, while the error is one that may pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.client.blocking import BlockingCaller
from penstock.client.calls import Call, path_of, reader_of, to_json
from penstock.client.http import URL_DEFAULT
from penstock.client.retries import Route
from penstock.ids import TopicPartition

_BYTES = "application/octet-stream"
T = TypeVar("T")

# A node answers after a while that it is still publishing.
_COMMIT_WAIT_S = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageName:
    """Under which names one task stages batches: see `POST .../commit` for what they mean."""

    home: str
    writer: str
    epoch: int
    run: str
    stage: str


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The stages that count in one partition, in their order, and the batches of each."""

    place: TopicPartition
    stages: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class _Staged:
    staged: bool


@dataclass(frozen=True, slots=True)
class _Committed:
    done: bool
    run: str


@dataclass(frozen=True, slots=True)
class _Aborted:
    aborted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterState:
    """The last epoch that is published everywhere, and one that is decided and not yet that far."""

    writer: str
    committed_epoch: int | None
    publishing_epoch: int | None


class StagedWriter:
    """Stages, commits and aborts; any number of threads may share it."""

    def __init__(
        self, urls: str | Sequence[str] = URL_DEFAULT, *, wait_s: float = 30.0, retry_s: float = 60
    ) -> None:
        """Name nodes; nothing is contacted yet."""
        self._caller = BlockingCaller(Route(urls, retry_s=retry_s), wait_s=wait_s)

    def stage(self, name: StageName, place: TopicPartition, number: int, batch: bytes) -> bool:
        """Stage one record batch; False when its epoch is committed there already."""
        path = path_of(
            "v1", "topics", place.topic, "writes", name.writer, name.epoch, name.run, name.stage,
            place.partition, number,
            home=name.home,
        )  # fmt: skip
        read = reader_of(_Staged)
        call = Call(method="PUT", path=path, read=read, content=batch, content_type=_BYTES)
        return self._caller.run(call).staged

    def commit(
        self, home: str, writer: str, epoch: int, run: str, parts: Sequence[StagedPart]
    ) -> str:
        """Publish what a run has staged; return the run that counts, empty when long decided.

        Returns when everything is published.
        """
        call = self._ending("commit", home, writer, _body(epoch, run, parts), _Committed)
        while True:
            answer = self._caller.run(call)
            if answer.done:
                return answer.run

    def abort(
        self, home: str, writer: str, epoch: int, run: str, parts: Sequence[StagedPart]
    ) -> bool:
        """Drop what a run has staged; False when it was committed before."""
        call = self._ending("abort", home, writer, _body(epoch, run, parts), _Aborted)
        return self._caller.run(call).aborted

    def status(self, home: str, writer: str) -> WriterState:
        """Return how far a writer is."""
        path = path_of("v1", "topics", home, "writes", writer, "status")
        return self._caller.run(Call(method="GET", path=path, read=reader_of(WriterState)))

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()

    def _ending(self, verb: str, home: str, writer: str, content: bytes, kind: type[T]) -> Call[T]:
        return Call(
            method="POST",
            path=path_of("v1", "topics", home, "writes", writer, verb),
            read=reader_of(kind),
            content=content,
            wait_s=_COMMIT_WAIT_S,
        )


def _body(epoch: int, run: str, parts: Sequence[StagedPart]) -> bytes:
    return to_json(
        {
            "epoch": epoch,
            "run": run,
            "parts": [
                {
                    "topic": part.place.topic,
                    "partition": part.place.partition,
                    "stages": [{"stage": name, "batches": count} for name, count in part.stages],
                }
                for part in parts
            ],
        }
    )

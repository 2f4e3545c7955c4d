"""Dead letters: messages that no consumer of a group could handle, and what is done with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import msgspec

from penstock.client.blocking import BlockingCaller
from penstock.client.calls import Call, path_of, reader_of, to_json
from penstock.client.contents import Content
from penstock.client.messages import Header
from penstock.client.publications import Headers, put_content
from penstock.client.streams import StreamCaller

# A redrive at a low rate takes its time on purpose.
_REDRIVE_WAIT_S = 600.0


class DeadLetterChoice(TypedDict, total=False):
    """Which dead letters are meant; what is not given does not matter.

    `reason` is a part of the reason or of the last error.
    """

    group: str | None
    reason: str | None
    key: str | None


class ClearingChoice(DeadLetterChoice, total=False):
    """The same, or single ones by their ids."""

    ids: Sequence[str] | None


class LetterEdit(TypedDict, total=False):
    """What a dead letter is to hold, as for publish; what is not given stays as it is."""

    value: Any
    key: bytes | str | None
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter: what it holds, where it came from and why it is here."""

    id: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    source_topic: str
    source_partition: int
    source_offset: int
    source_id: str
    source_timestamp_ms: int
    group: str
    attempts: int
    reason: str
    error: str
    redriven: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What a redrive did, or would do; `skipped` were held back by the guard against loops.

    `unknown` are ids that were given and that none of the chosen dead letters has.
    """

    moved: int
    skipped: int
    failed: int
    errors: tuple[str, ...]
    unknown: tuple[str, ...]
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """How many dead letters are gone, and the given ids that none of the chosen ones has."""

    purged: int
    unknown: tuple[str, ...]


class _Letter(Content, frozen=True, kw_only=True):
    id: str
    partition: int
    offset: int
    timestamp: int
    source_topic: str
    source_partition: int
    source_offset: int
    source_id: str
    source_timestamp: int
    group: str
    attempts: int
    reason: str
    error: str
    redriven: int


class _Letters(msgspec.Struct, frozen=True):
    letters: list[_Letter]


class DeadLetters:
    """What can be done with dead letters, by blocking calls."""

    def __init__(self, caller: BlockingCaller) -> None:
        self._caller = caller

    def search(
        self,
        topic: str,
        *,
        count_max: int = 100,
        after: str | None = None,
        **choice: Unpack[DeadLetterChoice],
    ) -> list[DeadLetter]:
        """Return dead letters of a topic, the oldest first in each partition."""
        return self._caller.run(search_call(topic, count_max, after, choice))

    def get(self, topic: str, letter_id: str) -> DeadLetter:
        """Return one dead letter."""
        return self._caller.run(letter_call(topic, letter_id))

    def edit(self, topic: str, letter_id: str, **edit: Unpack[LetterEdit]) -> DeadLetter:
        """Put one with other content in its place, which has another id and the same history."""
        return self._caller.run(edit_call(topic, letter_id, edit))

    def redrive(
        self,
        topic: str,
        *,
        to: str | None = None,
        rate_per_s: float | None = None,
        dry_run: bool = False,
        **choice: Unpack[ClearingChoice],
    ) -> Redriven:
        """Publish dead letters again, where they came from or to another topic.

        There every group receives them, and not only the one that gave them up.
        """
        call = redrive_call(topic, choice, to=to, rate_per_s=rate_per_s, dry_run=dry_run)
        return self._caller.run(call)

    def purge(self, topic: str, **choice: Unpack[ClearingChoice]) -> Purged:
        """Be done with dead letters."""
        return self._caller.run(purge_call(topic, choice))


class AsyncDeadLetters:
    """What can be done with dead letters, on an event loop."""

    def __init__(self, caller: StreamCaller) -> None:
        self._caller = caller

    async def search(
        self,
        topic: str,
        *,
        count_max: int = 100,
        after: str | None = None,
        **choice: Unpack[DeadLetterChoice],
    ) -> list[DeadLetter]:
        """Return dead letters of a topic, the oldest first in each partition."""
        return await self._caller.run(search_call(topic, count_max, after, choice))

    async def get(self, topic: str, letter_id: str) -> DeadLetter:
        """Return one dead letter."""
        return await self._caller.run(letter_call(topic, letter_id))

    async def edit(self, topic: str, letter_id: str, **edit: Unpack[LetterEdit]) -> DeadLetter:
        """Put one with other content in its place, which has another id and the same history."""
        return await self._caller.run(edit_call(topic, letter_id, edit))

    async def redrive(
        self,
        topic: str,
        *,
        to: str | None = None,
        rate_per_s: float | None = None,
        dry_run: bool = False,
        **choice: Unpack[ClearingChoice],
    ) -> Redriven:
        """Publish dead letters again, where they came from or to another topic.

        There every group receives them, and not only the one that gave them up.
        """
        call = redrive_call(topic, choice, to=to, rate_per_s=rate_per_s, dry_run=dry_run)
        return await self._caller.run(call)

    async def purge(self, topic: str, **choice: Unpack[ClearingChoice]) -> Purged:
        """Be done with dead letters."""
        return await self._caller.run(purge_call(topic, choice))


def search_call(
    topic: str, count_max: int, after: str | None, choice: DeadLetterChoice
) -> Call[list[DeadLetter]]:
    """Look for dead letters."""
    path = path_of(
        *_place(topic),
        max=count_max,
        after=after,
        group=choice.get("group"),
        reason=choice.get("reason"),
        key=choice.get("key"),
    )

    def read(answer: bytes) -> list[DeadLetter]:
        return [_letter(each) for each in _letters_of(answer).letters]

    return Call(method="GET", path=path, read=read)


def letter_call(topic: str, letter_id: str) -> Call[DeadLetter]:
    """Get one dead letter."""
    path = path_of(*_place(topic), letter_id)
    return Call(method="GET", path=path, read=lambda answer: _letter(_letter_of(answer)))


def edit_call(topic: str, letter_id: str, edit: LetterEdit) -> Call[DeadLetter]:
    """Edit a dead letter; the one that was replaced is not there the second time."""
    body: dict[str, Any] = {}
    if "value" in edit:
        put_content(body, "value", "encoding", edit["value"])
    if "key" in edit:
        put_content(body, "key", "key_encoding", edit["key"])
    if "headers" in edit:
        body["headers"] = dict(edit["headers"])
    return Call(
        method="PUT",
        path=path_of(*_place(topic), letter_id),
        content=msgspec.json.encode(body),
        read=lambda answer: _letter(_letter_of(answer)),
        is_repeatable=False,
    )


def redrive_call(
    topic: str,
    choice: ClearingChoice,
    *,
    to: str | None,
    rate_per_s: float | None,
    dry_run: bool,
) -> Call[Redriven]:
    """Publish dead letters again; what was moved is not there the second time."""
    return Call(
        method="POST",
        path=path_of(*_place(topic), "redrive"),
        content=to_json({**choice, "to": to, "rate": rate_per_s, "dry_run": dry_run}),
        read=reader_of(Redriven),
        is_repeatable=dry_run,
        wait_s=_REDRIVE_WAIT_S,
    )


def purge_call(topic: str, choice: ClearingChoice) -> Call[Purged]:
    """Be done with dead letters."""
    return Call(
        method="POST",
        path=path_of(*_place(topic), "purge"),
        content=to_json(dict(choice)),
        read=reader_of(Purged),
        is_repeatable=False,
    )


def _place(topic: str) -> tuple[str, ...]:
    return ("v1", "topics", topic, "dead-letters")


_letters_of = reader_of(_Letters)
_letter_of = reader_of(_Letter)


def _letter(letter: _Letter) -> DeadLetter:
    return DeadLetter(
        id=letter.id,
        partition=letter.partition,
        offset=letter.offset,
        timestamp_ms=letter.timestamp,
        key=letter.read_key(),
        value=letter.read_value(),
        headers=letter.read_headers(),
        source_topic=letter.source_topic,
        source_partition=letter.source_partition,
        source_offset=letter.source_offset,
        source_id=letter.source_id,
        source_timestamp_ms=letter.source_timestamp,
        group=letter.group,
        attempts=letter.attempts,
        reason=letter.reason,
        error=letter.error,
        redriven=letter.redriven,
    )

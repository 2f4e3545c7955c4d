"""Looking at dead letters and dealing with them: listing, redriving, replacing, purging.

Dead letters are records of a topic of their own, which any reader can read. Which of them have been
dealt with is kept in the books of a queue group that no consumer uses: what is settled there was
redriven, replaced or purged, and is not listed any more.

Topics may share one topic of dead letters. Asked for by the name of a topic, only those that came
from it are meant; asked for by the name of the topic that they are in, all of them. And groups of
one topic may have dead letters in topics of their own. Those of all its groups are meant; the id of
one that is not where most of them are ends with the name of the topic that it is in, as
`0-3@audit.dlq`. That sign is in no name of a topic.

Crash cases: a redrive publishes first and settles after that. Between the two the dead letter is
still listed, and redriving it again publishes nothing new for as long as the destination remembers
its idempotency key; after that time the message is there twice, but never lost.

A redrive may take its time. When the topic of dead letters is deleted meanwhile, what is left of
it fails: another topic of that name may have other dead letters at the same offsets.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import msgspec

from penstock.broker.burial import REDRIVEN
from penstock.broker.calls import Calls
from penstock.broker.dead_letter_values import (
    EVERYTHING,
    DeadLetter,
    DeadLetterFilter,
    Headers,
    Purge,
    Redrive,
    notes_of,
    read_letter,
)
from penstock.broker.messages import Messages, NewMessage
from penstock.broker.queue_values import check_number
from penstock.broker.stored import end_offset, stored_records
from penstock.cluster import DEAD_LETTER_SUFFIX, Cluster, Partition
from penstock.errors import InvalidRequest, MessageNotFound, PenstockError, TopicNotFound
from penstock.ids import TopicPartition
from penstock.record import PREFIX, Record

LISTED_MAX = 10_000
REDRIVES_MAX = 3
# The group in whose books dead letters are settled that somebody has dealt with.
HANDLED = "penstock-dead-letters"
_PAGE_BYTES = 1024 * 1024
_PAGE_RECORDS = 500
_PORTION = 100


class _ReadPage(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    filter: DeadLetterFilter


class _Page(msgspec.Struct, frozen=True):
    letters: list[DeadLetter]
    next_offset: int | None


class _Settle(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    log: int
    offsets: list[int]


class _Position(NamedTuple):
    mark: str
    partition: int
    offset: int


class _Grave(NamedTuple):
    """A topic of dead letters, and with what the ids of those in it end."""

    topic: str
    mark: str


class DeadLetters:
    """The verbs that concern dead letters."""

    def __init__(self, cluster: Cluster, calls: Calls, messages: Messages) -> None:
        self._cluster = cluster
        self._calls = calls
        self._messages = messages
        calls.serve("dead_letters.read", _ReadPage, self._read_here)
        calls.serve("dead_letters.settle", _Settle, self._settle_here)

    async def search(
        self,
        topic: str,
        *,
        wanted: DeadLetterFilter = EVERYTHING,
        count_max: int = 100,
        after: str | None = None,
    ) -> list[DeadLetter]:
        """Return dead letters, oldest first in each partition, from after the one of that id on."""
        check_number("count_max", count_max, 1, LISTED_MAX)
        found: list[DeadLetter] = []
        async for letters in self._pages(topic, wanted, after):
            found += letters
            if len(found) >= count_max:
                break
        return found[:count_max]

    async def redrive(
        self,
        topic: str,
        *,
        wanted: DeadLetterFilter = EVERYTHING,
        to: str | None = None,
        rate_per_s: float | None = None,
        count_max: int = LISTED_MAX,
        redrives_max: int = REDRIVES_MAX,
        is_dry_run: bool = False,
    ) -> Redrive:
        """Publish dead letters again, where they came from or to another topic.

        One that came back `redrives_max` times already is held back.
        """
        check_number("count_max", count_max, 1, LISTED_MAX)
        if rate_per_s is not None and not 0 < rate_per_s <= 1_000_000:
            raise InvalidRequest(
                f"the rate is {rate_per_s:g} messages a second, not above 0 and up to 1000000"
            )
        if to is not None and any(to == grave.topic for grave in self._graves(topic)):
            raise InvalidRequest(f"dead letters of {to!r} cannot be redriven to itself")
        if to is not None:
            self._cluster.metadata.topic(to)
        # All that are named are looked for: one beyond the count is not unknown.
        looked_for_max = count_max if wanted.ids is None else LISTED_MAX
        found = await self.search(topic, wanted=wanted, count_max=looked_for_max)
        letters, unknown = found[:count_max], wanted.unknown({each.id for each in found})
        moved = [each for each in letters if each.redriven < redrives_max]
        skipped = len(letters) - len(moved)
        if is_dry_run:
            return Redrive(len(moved), skipped, 0, unknown=unknown)
        errors: list[str] = []
        for portion in _portions(moved, rate_per_s):
            errors += await self._redrive_some(portion, to)
            if rate_per_s is not None:
                await asyncio.sleep(len(portion) / rate_per_s)
        return Redrive(len(moved) - len(errors), skipped, len(errors), errors[:_PORTION], unknown)

    async def replace(
        self,
        topic: str,
        letter_id: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> DeadLetter:
        """Put an edited dead letter in the place of another.

        Its notes stay as they are, and so do headers of Penstock's own that are not given anew.
        """
        named = DeadLetterFilter(ids=frozenset([letter_id]))
        letters = await self.search(topic, wanted=named, count_max=1)
        if not letters:
            raise MessageNotFound(f"there is no dead letter {letter_id!r} of {topic!r}")
        letter = letters[0]
        given = {name for name, _ in headers}
        own = [
            (name, content)
            for name, content in letter.headers
            if name.startswith(PREFIX) and name not in given
        ]
        message = NewMessage(
            key=key,
            value=value,
            headers=(*headers, *own, *notes_of(letter)),
            partition=letter.partition,
            idempotency_key=f"replace/{_identity(letter)}",
        )
        (published,) = await self._messages.publish(letter.topic, [message])
        if isinstance(published, PenstockError):
            raise published
        await self._settle([letter])
        new_id = published.id + _position(letter_id).mark
        found = await self.search(
            topic, wanted=DeadLetterFilter(ids=frozenset([new_id])), count_max=1
        )
        if not found:
            raise MessageNotFound(f"dead letter {new_id!r} of {topic!r} is gone already")
        return found[0]

    async def purge(
        self,
        topic: str,
        *,
        wanted: DeadLetterFilter = EVERYTHING,
    ) -> Purge:
        """Be done with dead letters. Their records stay in the log."""
        purged = 0
        found: set[str] = set()
        async for letters in self._pages(topic, wanted, None):
            await self._settle(letters)
            purged += len(letters)
            if wanted.ids is not None:
                found.update(each.id for each in letters)
        return Purge(purged, wanted.unknown(found))

    def _graves(self, topic: str) -> list[_Grave]:
        """Return where dead letters of a topic are, first where those of most groups are.

        A topic of dead letters is its own.
        """
        metadata = self._cluster.metadata
        settings_of = self._cluster.replicas.group_settings
        groups = metadata.topic(topic).groups
        own = settings_of(topic, "").dead_letter_topic
        if own not in metadata.topics and self._takes_dead_letters(topic):
            own = topic
        others = {settings_of(topic, group).dead_letter_topic for group in groups} - {own}
        known = [_Grave(name, f"@{name}") for name in sorted(others) if name in metadata.topics]
        return [_Grave(own, ""), *known]

    def _takes_dead_letters(self, topic: str) -> bool:
        """True for the name of dead letters, and for what a topic or a group names as theirs."""
        settings_of = self._cluster.replicas.group_settings
        return topic.endswith(DEAD_LETTER_SUFFIX) or any(
            settings_of(name, group).dead_letter_topic == topic
            for name, found in self._cluster.metadata.topics.items()
            for group in ("", *found.groups)
        )

    def _is_gone(self, letter: DeadLetter) -> bool:
        """Whether the topic that a dead letter was found in is not there any more."""
        topic = self._cluster.metadata.topics.get(letter.topic)
        replicas = () if topic is None else topic.replicas
        return all(each.group != letter.log for each in replicas)

    async def _pages(
        self, topic: str, wanted: DeadLetterFilter, after: str | None
    ) -> AsyncIterator[list[DeadLetter]]:
        """Yield what matches, page by page, partition by partition, topic by topic."""
        graves = self._graves(topic)
        begin = _START if after is None else _position(after)
        marks = [grave.mark for grave in graves]
        if begin.mark not in marks:
            raise InvalidRequest(f"{after!r} is not the id of a dead letter of {topic!r}")
        for grave in graves[marks.index(begin.mark) :]:
            start = begin if grave.mark == begin.mark else _START
            wanted_here = wanted if grave.topic == topic else wanted.from_topic(topic)
            async for letters in self._pages_in(grave, wanted_here, start):
                yield letters

    async def _pages_in(
        self, grave: _Grave, wanted: DeadLetterFilter, start: _Position
    ) -> AsyncIterator[list[DeadLetter]]:
        wanted = wanted.in_grave(grave.mark)
        found = self._cluster.metadata.topics.get(grave.topic)
        if found is None or wanted.ids == frozenset():
            # Nothing has died yet, or nothing is meant that is here.
            return
        for number in range(start.partition, found.partitions):
            offset: int | None = start.offset + 1 if number == start.partition else 0
            place = TopicPartition(grave.topic, number)
            while offset is not None:
                request = _ReadPage(grave.topic, number, offset, wanted)
                page = await self._calls.ask(place, "dead_letters.read", request, _Page)
                if page.letters:
                    yield [_marked(each, grave.mark) for each in page.letters]
                offset = page.next_offset

    async def _redrive_some(self, letters: Sequence[DeadLetter], to: str | None) -> list[str]:
        """Publish some dead letters and settle those that are; return the errors of others."""
        by_topic: dict[str, list[DeadLetter]] = {}
        errors = []
        for letter in letters:
            if self._is_gone(letter):
                errors.append(f"{letter.id}: topic {letter.topic!r} was deleted meanwhile")
            else:
                by_topic.setdefault(to or letter.source_topic, []).append(letter)
        for destination, portion in by_topic.items():
            try:
                results = await self._messages.publish(
                    destination, [self._revived(letter, to) for letter in portion]
                )
            except TopicNotFound as error:
                errors += [f"{letter.id}: {error}" for letter in portion]
                continue
            done = []
            for letter, result in zip(portion, results, strict=True):
                if isinstance(result, PenstockError):
                    errors.append(f"{letter.id}: {result}")
                else:
                    done.append(letter)
            await self._settle(done)
        return errors

    def _revived(self, letter: DeadLetter, to: str | None) -> NewMessage:
        source = self._cluster.metadata.topics.get(letter.source_topic)
        goes_home = to is None and source is not None
        has_partition = source is not None and letter.source_partition < source.partitions
        return NewMessage(
            key=letter.key,
            value=letter.value,
            headers=(*letter.headers, (REDRIVEN, str(letter.redriven + 1).encode())),
            partition=letter.source_partition if goes_home and has_partition else None,
            idempotency_key=f"redrive/{_identity(letter)}",
        )

    async def _settle(self, letters: Sequence[DeadLetter]) -> None:
        by_log: dict[tuple[TopicPartition, int], list[int]] = {}
        for letter in letters:
            place = TopicPartition(letter.topic, letter.partition)
            by_log.setdefault((place, letter.log), []).append(letter.offset)
        for (place, log), offsets in by_log.items():
            request = _Settle(*place, log, offsets)
            await self._calls.ask(place, "dead_letters.settle", request, bool)

    # On the leader.

    async def _read_here(self, request: _ReadPage) -> _Page:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        partition.check_serving()
        books = partition.queue.groups.get(HANDLED)
        letters: list[DeadLetter] = []
        offset: int | None = max(request.offset, partition.start_offset)
        while offset is not None and len(letters) < _PAGE_RECORDS:
            records, offset = _records(partition, offset)
            for record in records:
                if books is not None and books.is_settled(record.offset):
                    continue
                letter = read_letter(partition.place, record, log=partition.log.identity.group)
                if letter is not None and request.filter.matches(letter):
                    letters.append(letter)
            await asyncio.sleep(0)
        return _Page(letters, offset)

    async def _settle_here(self, request: _Settle) -> bool:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        if partition.log.identity.group != request.log:
            raise TopicNotFound(f"topic {request.topic!r} is another one than it was")
        await partition.queue.create_group(HANDLED, partition.start_offset)
        await partition.queue.settle(HANDLED, request.offsets)
        return True


_OFFSET_END = 1 << 62
_START = _Position("", 0, -1)


def _position(letter_id: str) -> _Position:
    bare, at, name = letter_id.partition("@")
    try:
        partition, offset = (int(part) for part in bare.split("-"))
    except ValueError:
        raise InvalidRequest(f"{letter_id[:60]!r} is not the id of a dead letter") from None
    if not 0 <= offset < _OFFSET_END:
        raise InvalidRequest(f"{letter_id[:60]!r} is not the id of a dead letter")
    return _Position(at + name, partition, offset)


def _identity(letter: DeadLetter) -> str:
    """Return what tells a dead letter from all others, whichever name it was asked for by."""
    return f"{letter.log}/{letter.partition}-{letter.offset}"


def _marked(letter: DeadLetter, mark: str) -> DeadLetter:
    return msgspec.structs.replace(letter, id=letter.id + mark) if mark else letter


def _portions(
    letters: Sequence[DeadLetter], rate_per_s: float | None
) -> list[Sequence[DeadLetter]]:
    """Cut into portions; with a rate, ten of them a second, so that they come evenly."""
    size = _PORTION if rate_per_s is None else max(1, min(_PORTION, int(rate_per_s / 10)))
    return [letters[start : start + size] for start in range(0, len(letters), size)]


def _records(partition: Partition, offset: int) -> tuple[list[Record], int | None]:
    """Return the records of a page from `offset` on, and where the next page begins."""
    if offset >= partition.high_watermark:
        return [], None
    found = partition.read(offset, bytes_max=_PAGE_BYTES)
    if found is None:
        return [], None
    data = found.read()
    return list(stored_records(partition, data, offset=offset)), end_offset(data)

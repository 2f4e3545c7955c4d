"""`/v1/topics/{topic}/dead-letters`: look at dead letters, edit, send back, purge them."""

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import DeadLetter, DeadLetterFilter
from penstock.errors import MessageNotFound
from penstock.protocols.http.contents import read_headers, show_headers, to_bytes, to_text
from penstock.protocols.http.dead_letter_bodies import (
    DeadLetterAnswer,
    DeadLetterChoice,
    DeadLetterList,
    EditedLetter,
    PurgeAnswer,
    PurgeBody,
    RedriveAnswer,
    RedriveBody,
)
from penstock.protocols.http.endpoints import (
    FAILURES,
    TOPIC,
    Answer,
    Endpoint,
    Parameter,
    query,
    text_query,
)
from penstock.protocols.http.exchange import from_here, json_response, read_body, read_count
from penstock.protocols.http.view import NodeView

LISTED_MAX = 10_000
_LISTED_DEFAULT = 100
_PATH = "/v1/topics/{topic}/dead-letters"
_ID = Parameter(name="id", type="string", meaning="Id of a dead letter.")
_LETTER = Answer(meaning="The dead letter.", body=DeadLetterAnswer)


def dead_letter_endpoints(view: NodeView, *, bytes_max: int) -> list[Endpoint]:
    """What can be done with dead letters; an edited one has at most `bytes_max`."""
    return [*_looking(view), *_editing(view, bytes_max), *_clearing(view)]


def _looking(view: NodeView) -> list[Endpoint]:
    async def search(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"]).name
        given = request.query_params
        count_max = read_count(request, default=_LISTED_DEFAULT, most=LISTED_MAX)
        wanted = DeadLetterFilter(
            group=given.get("group"),
            reason=given.get("reason"),
            key=to_bytes("key", given.get("key"), "text"),
        )
        found = await view.dead_letters.search(
            topic, wanted=wanted, count_max=count_max, after=given.get("after")
        )
        after = found[-1].id if len(found) == count_max else None
        return json_response(DeadLetterList(letters=[_show(each) for each in found], after=after))

    async def show(request: Request) -> Response:
        return json_response(_show(await _find(view, request)))

    return [
        Endpoint(
            path=_PATH,
            name="dead-letters",
            summary="Dead letters of a topic",
            description="Oldest first in each partition. Those that were sent back, replaced or"
            " purged are not listed. Where topics share a topic of dead letters, each has its own"
            " of them, and the name of the shared topic stands for all. Those of groups that have a"
            " topic of dead letters of their own come last, with its name in their ids.",
            parameters=(
                TOPIC,
                text_query("group", "Only those of this queue group."),
                text_query("reason", "Only those with this in their reason or last error."),
                text_query("key", "Only those with this key."),
                query("max", f"How many, up to {LISTED_MAX}."),
                text_query("after", "The id after which the list goes on."),
            ),
            answers={200: Answer(meaning="What was found.", body=DeadLetterList), **FAILURES},
            call=search,
        ),
        Endpoint(
            path=f"{_PATH}/{{id}}",
            name="dead-letter",
            summary="One dead letter",
            description="With where it came from and why it is here.",
            parameters=(TOPIC, _ID),
            answers={200: _LETTER, **FAILURES},
            call=show,
        ),
    ]


def _editing(view: NodeView, bytes_max: int) -> list[Endpoint]:
    async def replace(request: Request) -> Response:
        body = await read_body(request, EditedLetter, bytes_max=bytes_max)
        letter = await _find(view, request)
        replaced = await view.dead_letters.replace(
            request.path_params["topic"],
            letter.id,
            key=letter.key if body.key is UNSET else to_bytes("key", body.key, body.key_encoding),
            value=letter.value
            if body.value is UNSET
            else to_bytes("value", body.value, body.encoding),
            headers=letter.headers if body.headers is UNSET else read_headers(body.headers),
        )
        return json_response(_show(replaced))

    return [
        Endpoint(
            path=f"{_PATH}/{{id}}",
            method="PUT",
            name="replace-dead-letter",
            summary="Edit a dead letter",
            description="A new one with the given content takes its place; it has another id and"
            " the same history. What is left out stays.",
            parameters=(TOPIC, _ID),
            body=EditedLetter,
            example='{"value": {"total": 12, "currency": "EUR"}}',
            answers={200: _LETTER, **FAILURES},
            call=from_here(replace),
        ),
    ]


def _clearing(view: NodeView) -> list[Endpoint]:
    async def redrive(request: Request) -> Response:
        body = await read_body(request, RedriveBody)
        done = await view.dead_letters.redrive(
            view.topics.find(request.path_params["topic"]).name,
            wanted=_filter(body),
            to=body.to,
            rate_per_s=body.rate,
            count_max=body.max,
            redrives_max=body.redrives_max,
            is_dry_run=body.dry_run,
        )
        return json_response(
            RedriveAnswer(
                moved=done.moved,
                skipped=done.skipped,
                failed=done.failed,
                errors=done.errors,
                unknown=done.unknown,
                dry_run=body.dry_run,
            )
        )

    async def purge(request: Request) -> Response:
        body = await read_body(request, PurgeBody)
        topic = view.topics.find(request.path_params["topic"]).name
        done = await view.dead_letters.purge(topic, wanted=_filter(body))
        return json_response(PurgeAnswer(purged=done.purged, unknown=done.unknown))

    return [
        Endpoint(
            path=f"{_PATH}/redrive",
            method="POST",
            name="redrive",
            summary="Send dead letters back",
            description="To the topics that they came from, or to another one, where every group"
            " receives them and not only the one that gave them up. With a rate the answer comes"
            " when all are sent.",
            parameters=(TOPIC,),
            body=RedriveBody,
            example='{"reason": "timeout", "rate": 100, "dry_run": true}',
            answers={
                200: Answer(meaning="What was or would be done.", body=RedriveAnswer),
                **FAILURES,
            },
            call=from_here(redrive),
        ),
        Endpoint(
            path=f"{_PATH}/purge",
            method="POST",
            name="purge-dead-letters",
            summary="Be done with dead letters",
            description="All, or those that are chosen. Their records stay in the log until its"
            " retention ends.",
            parameters=(TOPIC,),
            body=PurgeBody,
            example='{"ids": ["0-3", "0-4"]}',
            answers={200: Answer(meaning="How many.", body=PurgeAnswer), **FAILURES},
            call=from_here(purge),
        ),
    ]


async def _find(view: NodeView, request: Request) -> DeadLetter:
    topic = view.topics.find(request.path_params["topic"]).name
    letter_id: str = request.path_params["id"]
    named = DeadLetterFilter(ids=frozenset([letter_id]))
    found = await view.dead_letters.search(topic, wanted=named, count_max=1)
    if not found:
        raise MessageNotFound(f"there is no dead letter {letter_id[:80]!r} of {topic!r}")
    return found[0]


def _filter(choice: DeadLetterChoice) -> DeadLetterFilter:
    return DeadLetterFilter(
        group=choice.group,
        reason=choice.reason,
        key=to_bytes("key", choice.key, choice.key_encoding),
        ids=None if choice.ids is None else frozenset(choice.ids),
    )


def _show(letter: DeadLetter) -> DeadLetterAnswer:
    value, encoding = to_text(letter.value)
    key, key_encoding = to_text(letter.key)
    headers, raw_headers = show_headers(letter.headers)
    return DeadLetterAnswer(
        id=letter.id,
        partition=letter.partition,
        offset=letter.offset,
        timestamp=letter.timestamp,
        key=key,
        value=value,
        headers=headers,
        source_topic=letter.source_topic,
        source_partition=letter.source_partition,
        source_offset=letter.source_offset,
        source_id=letter.source_id,
        source_timestamp=letter.source_timestamp,
        group=letter.group,
        attempts=letter.attempts,
        reason=letter.reason,
        error=letter.error,
        redriven=letter.redriven,
        encoding=UNSET if encoding == "text" else encoding,
        key_encoding=UNSET if key_encoding == "text" else key_encoding,
        raw_headers=raw_headers,
    )

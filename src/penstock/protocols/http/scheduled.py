"""`/v1/topics/{topic}/scheduled`: messages that wait for their time."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import Scheduled
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocols.http.answers import Failure
from penstock.protocols.http.contents import Encoding, show_headers, to_text
from penstock.protocols.http.endpoints import (
    FAILURES,
    TOPIC,
    Answer,
    Endpoint,
    query,
    text_query,
)
from penstock.protocols.http.exchange import from_here, json_response, read_body, read_count
from penstock.protocols.http.failures import Failures
from penstock.protocols.http.message_bodies import Duration, Moment
from penstock.protocols.http.times import DELAY_MS_MAX, read_duration_ms, read_moment_ms
from penstock.protocols.http.view import NodeView

LISTED_MAX = 1_000
_LISTED_DEFAULT = 100
_BODY_BYTES_MAX = 1024 * 1024
_PATH = "/v1/topics/{topic}/scheduled"
_Ids = Annotated[list[str], Meta(min_length=1, max_length=10_000)]


class ScheduledMessage(Struct, frozen=True, kw_only=True):
    """A message that is delivered at `deliver_at`."""

    id: str
    partition: int
    deliver_at: int
    timestamp: Annotated[int, Meta(description="When it was published.")]
    key: str | None
    value: str | None
    headers: dict[str, str | None]
    encoding: Encoding | UnsetType = UNSET
    key_encoding: Encoding | UnsetType = UNSET
    raw_headers: list[tuple[str, str | None]] | UnsetType = UNSET


class ScheduledMessages(Struct, frozen=True, kw_only=True):
    """Messages in the order of their time; `after` continues the list where there may be more."""

    messages: list[ScheduledMessage]
    after: str | None
    waiting: Annotated[int, Meta(description="How many wait in all.")]


class ScheduledIds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that are meant."""

    ids: _Ids


class MoveScheduledBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages, and when they are to be delivered: at a time, or after a delay from now."""

    ids: _Ids
    deliver_at: Moment | None = None
    delay: Duration | None = None


class FailedId(Struct, frozen=True, kw_only=True):
    """A message that could not be changed, and why."""

    id: str
    error: Failure


class ScheduleChanged(Struct, frozen=True, kw_only=True):
    """How many messages were changed, and those that were not."""

    accepted: int
    failed: list[FailedId]


_CHANGED = {200: Answer(meaning="What was accepted.", body=ScheduleChanged), **FAILURES}


def schedule_endpoints(view: NodeView, failures: Failures) -> list[Endpoint]:
    """What can be done with messages before their time."""
    return [*_looking(view), *_moving(view, failures), *_ending(view, failures)]


def _looking(view: NodeView) -> list[Endpoint]:
    async def list_scheduled(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"]).name
        count_max = read_count(request, default=_LISTED_DEFAULT, most=LISTED_MAX)
        after = request.query_params.get("after", "")
        found = await view.schedule.list(topic, count_max=count_max, after=after)
        return json_response(
            ScheduledMessages(
                messages=[_show(each) for each in found],
                after=found[-1].cursor if len(found) == count_max else None,
                waiting=await view.schedule.count(topic),
            )
        )

    return [
        Endpoint(
            path=_PATH,
            name="scheduled",
            summary="Messages that wait for their time",
            description="The next one first.",
            parameters=(
                TOPIC,
                query("max", f"How many, up to {LISTED_MAX}."),
                text_query("after", "Where an earlier list ended."),
            ),
            answers={200: Answer(meaning="What waits.", body=ScheduledMessages), **FAILURES},
            call=list_scheduled,
        )
    ]


def _moving(view: NodeView, failures: Failures) -> list[Endpoint]:
    async def move(request: Request) -> Response:
        body = await read_body(request, MoveScheduledBody, bytes_max=_BODY_BYTES_MAX)
        topic = view.topics.find(request.path_params["topic"]).name
        outcomes = await view.schedule.move(topic, body.ids, _new_time(body, view.now_ms()))
        return _changed(body.ids, outcomes, failures)

    return [
        Endpoint(
            path=f"{_PATH}/move",
            method="POST",
            name="move-scheduled",
            summary="Give messages another time",
            description="One that has passed delivers them at once.",
            parameters=(TOPIC,),
            body=MoveScheduledBody,
            example='{"ids": ["0-s12-0"], "deliver_at": "2030-01-01T08:00:00Z"}',
            answers=_CHANGED,
            call=from_here(move),
        )
    ]


def _ending(view: NodeView, failures: Failures) -> list[Endpoint]:
    async def cancel(request: Request) -> Response:
        body = await read_body(request, ScheduledIds, bytes_max=_BODY_BYTES_MAX)
        topic = view.topics.find(request.path_params["topic"]).name
        outcomes = await view.schedule.cancel(topic, body.ids)
        return _changed(body.ids, outcomes, failures)

    async def release(request: Request) -> Response:
        body = await read_body(request, ScheduledIds, bytes_max=_BODY_BYTES_MAX)
        topic = view.topics.find(request.path_params["topic"]).name
        outcomes = await view.schedule.release(topic, body.ids)
        return _changed(body.ids, outcomes, failures)

    example = '{"ids": ["0-s12-0"]}'
    return [
        Endpoint(
            path=f"{_PATH}/cancel",
            method="POST",
            name="cancel-scheduled",
            summary="Cancel messages",
            description="They are never delivered. One whose time has come is refused.",
            parameters=(TOPIC,),
            body=ScheduledIds,
            example=example,
            answers=_CHANGED,
            call=from_here(cancel),
        ),
        Endpoint(
            path=f"{_PATH}/release",
            method="POST",
            name="release-scheduled",
            summary="Deliver messages at once",
            description="Before their time.",
            parameters=(TOPIC,),
            body=ScheduledIds,
            example=example,
            answers=_CHANGED,
            call=from_here(release),
        ),
    ]


def _new_time(body: MoveScheduledBody, now_ms: int) -> int:
    if body.deliver_at is not None and body.delay is None:
        return read_moment_ms("deliver_at", body.deliver_at)
    if body.delay is not None and body.deliver_at is None:
        return now_ms + read_duration_ms("delay", body.delay, max_ms=DELAY_MS_MAX)
    raise InvalidRequest("one of deliver_at and delay is needed, and not both")


def _changed(
    ids: Sequence[str], outcomes: Sequence[PenstockError | None], failures: Failures
) -> Response:
    failed = [
        FailedId(id=each, error=failures.of(outcome))
        for each, outcome in zip(ids, outcomes, strict=True)
        if outcome is not None
    ]
    return json_response(ScheduleChanged(accepted=len(ids) - len(failed), failed=failed))


def _show(scheduled: Scheduled) -> ScheduledMessage:
    value, encoding = to_text(scheduled.value)
    key, key_encoding = to_text(scheduled.key)
    headers, raw_headers = show_headers(scheduled.headers)
    return ScheduledMessage(
        id=scheduled.id,
        partition=scheduled.partition,
        deliver_at=scheduled.due_ms,
        timestamp=scheduled.published_ms,
        key=key,
        value=value,
        headers=headers,
        encoding=UNSET if encoding == "text" else encoding,
        key_encoding=UNSET if key_encoding == "text" else key_encoding,
        raw_headers=raw_headers,
    )

"""`/v1/topics/{topic}/messages/{id}/trace`: the life of one message."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import TraceKind, TraceStep
from penstock.protocols.http.endpoints import FAILURES, TOPIC, Answer, Endpoint, Parameter
from penstock.protocols.http.exchange import json_response
from penstock.protocols.http.view import NodeView

_ID = Parameter(name="id", type="string", meaning="Id of a message.")


class LifeStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step: when it happened, and where it applies to whom, by whom and at which attempt."""

    kind: TraceKind
    at: int
    node: int | None = None
    group: str = ""
    consumer: str = ""
    attempt: int = 0
    detail: str = ""


class MessageLife(Struct, frozen=True, kw_only=True):
    """The steps in the order of the log."""

    topic: str
    id: str
    steps: list[LifeStep]


def trace_endpoints(view: NodeView) -> list[Endpoint]:
    """What happened to a message."""

    async def trace(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"]).name
        message_id: str = request.path_params["id"]
        steps = await view.queues.trace(topic, message_id)
        return json_response(
            MessageLife(topic=topic, id=message_id, steps=[_show(each) for each in steps])
        )

    return [
        Endpoint(
            path="/v1/topics/{topic}/messages/{id}/trace",
            name="trace",
            summary="The life of a message",
            description="Published, delivered to whom and how often, settled by whom: read from"
            " the log when asked, for as long as the log keeps it.",
            parameters=(TOPIC, _ID),
            answers={200: Answer(meaning="What happened so far.", body=MessageLife), **FAILURES},
            call=trace,
        )
    ]


def _show(step: TraceStep) -> LifeStep:
    return LifeStep(
        kind=step.kind,
        at=step.at_ms,
        node=step.node,
        group=step.group,
        consumer=step.consumer,
        attempt=step.attempt,
        detail=step.detail,
    )

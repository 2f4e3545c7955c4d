"""`/v1/topics/{topic}/reshard`: let a topic's copy take its place."""

import uuid
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import ReshardStatus, TopicFence
from penstock.protocols.http.endpoints import FAILURES, TOPIC, Answer, Endpoint
from penstock.protocols.http.exchange import from_here, json_response, read_body
from penstock.protocols.http.view import NodeView

# Thousands of groups, each with thousands of partitions.
_SWITCH_BYTES_MAX = 64 * 1024 * 1024

_STATUS = Answer(meaning="As it stands.", body=ReshardStatus)


class NewReshard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The copy that is to take a topic's place, and a name for the whole."""

    reshard_id: uuid.UUID
    target: Annotated[str, Meta(min_length=1, max_length=249)]


class FenceOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For which reshard writes are to be turned away."""

    reshard_id: uuid.UUID


class FenceLifted(Struct, frozen=True, kw_only=True):
    """Writes go on, unless another fence was raised since."""

    topic: str
    fence: int


class LiftOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fence that is to be lifted."""

    fence: Annotated[int, Meta(ge=1, le=2**62)]


class SwitchOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Under which fence the copy is whole, and what the former topic is called from then on.

    `positions` says where consumer groups go on, by group, for each partition of the copy; those
    that are not named go on at its start.
    """

    reshard_id: uuid.UUID
    fence: Annotated[int, Meta(ge=1, le=2**62)]
    former_name: Annotated[str, Meta(min_length=1, max_length=249)]
    positions: dict[str, list[Annotated[int, Meta(ge=0, le=2**62)]]] = {}


class ReshardCancelled(Struct, frozen=True, kw_only=True):
    """The topic is as it was."""

    topic: str


def reshard_endpoints(view: NodeView) -> list[Endpoint]:
    """What the job behind `penstock reshard` asks for."""
    return [*_looking(view), *_fencing(view), *_ending(view)]


def _looking(view: NodeView) -> list[Endpoint]:
    async def show(request: Request) -> Response:
        return json_response(await view.reshards.status(_topic_of(view, request)))

    async def begin(request: Request) -> Response:
        topic = _topic_of(view, request)
        body = await read_body(request, NewReshard)
        await view.reshards.begin(topic, body.reshard_id, body.target)
        return json_response(await view.reshards.status(topic))

    return [
        Endpoint(
            path="/v1/topics/{topic}/reshard",
            name="reshard",
            summary="How far the reshard of a topic is",
            description="Its phase is `copying`, `fenced` or `switched`.",
            parameters=(TOPIC,),
            answers={200: _STATUS, **FAILURES},
            call=show,
        ),
        Endpoint(
            path="/v1/topics/{topic}/reshard",
            method="POST",
            name="begin-reshard",
            summary="Name the copy that is to take a topic's place",
            description="Sent by `penstock reshard`, which fills the copy. Until the switch"
            " neither topic can get more partitions.",
            parameters=(TOPIC,),
            body=NewReshard,
            example='{"reshard_id": "8a6f9c1e-5d2b-4c1f-9f57-1f7f4d1c8b11",'
            ' "target": "orders.reshard-8a6f9c1e"}',
            answers={200: _STATUS, **FAILURES},
            call=from_here(begin),
        ),
    ]


def _fencing(view: NodeView) -> list[Endpoint]:
    async def fence(request: Request) -> Response:
        topic = _topic_of(view, request)
        body = await read_body(request, FenceOrder)
        return json_response(await view.reshards.fence(topic, body.reshard_id))

    async def lift(request: Request) -> Response:
        topic = _topic_of(view, request)
        body = await read_body(request, LiftOrder)
        await view.reshards.lift(topic, body.fence)
        return json_response(FenceLifted(topic=topic, fence=body.fence))

    return [
        Endpoint(
            path="/v1/topics/{topic}/reshard/fence",
            method="POST",
            name="fence-topic",
            summary="Turn writes away, or go on doing so",
            description="Answered when no partition takes writes any more, with their ends. A"
            " fence that is not asked for again within a minute is lifted.",
            parameters=(TOPIC,),
            body=FenceOrder,
            example='{"reshard_id": "8a6f9c1e-5d2b-4c1f-9f57-1f7f4d1c8b11"}',
            answers={200: Answer(meaning="Writes are turned away.", body=TopicFence), **FAILURES},
            call=from_here(fence),
        ),
        Endpoint(
            path="/v1/topics/{topic}/reshard/fence/lift",
            method="POST",
            name="lift-fence",
            summary="Let a topic be written to again",
            description="A fence that was lifted or replaced before is left as it is.",
            parameters=(TOPIC,),
            body=LiftOrder,
            example='{"fence": 1}',
            answers={200: Answer(meaning="Writes go on.", body=FenceLifted), **FAILURES},
            call=from_here(lift),
        ),
    ]


def _ending(view: NodeView) -> list[Endpoint]:
    async def switch(request: Request) -> Response:
        topic = _topic_of(view, request)
        body = await read_body(request, SwitchOrder, bytes_max=_SWITCH_BYTES_MAX)
        await view.reshards.switch(
            topic,
            body.reshard_id,
            fence=body.fence,
            former_name=body.former_name,
            positions=body.positions,
        )
        return json_response(await view.reshards.status(body.former_name))

    async def cancel(request: Request) -> Response:
        topic = _topic_of(view, request)
        await view.reshards.cancel(topic)
        return json_response(ReshardCancelled(topic=topic))

    return [
        Endpoint(
            path="/v1/topics/{topic}/reshard/switch",
            method="POST",
            name="switch-topics",
            summary="Give a topic's name to its copy",
            description="A conflict when the fence was lifted: there may be records that the copy"
            " lacks. The former topic is kept under its new name, and takes no writes.",
            parameters=(TOPIC,),
            body=SwitchOrder,
            example='{"reshard_id": "8a6f9c1e-5d2b-4c1f-9f57-1f7f4d1c8b11", "fence": 1,'
            ' "former_name": "orders.before-8a6f9c1e", "positions": {"billing": [10, 12]}}',
            answers={200: Answer(meaning="The former topic.", body=ReshardStatus), **FAILURES},
            call=from_here(switch),
        ),
        Endpoint(
            path="/v1/topics/{topic}/reshard",
            method="DELETE",
            name="cancel-reshard",
            summary="Forget a reshard and delete its copy",
            description="Writes go on when they were turned away. A conflict after the switch.",
            parameters=(TOPIC,),
            answers={200: Answer(meaning="As it was.", body=ReshardCancelled), **FAILURES},
            call=from_here(cancel),
        ),
    ]


def _topic_of(view: NodeView, request: Request) -> str:
    name: str = view.topics.find(request.path_params["topic"]).name
    return name

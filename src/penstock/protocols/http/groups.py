"""`/v1/topics/{topic}/groups`: look at queue groups, change them, begin anew, delete them."""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import BlockedKeyStatus, GroupStatus, PartitionGroupStatus
from penstock.errors import GroupNotFound, InvalidRequest
from penstock.protocols.http.contents import to_text
from penstock.protocols.http.endpoints import FAILURES, GROUP, TOPIC, Answer, Endpoint, query
from penstock.protocols.http.exchange import from_here, json_response, read_body, read_count
from penstock.protocols.http.group_bodies import (
    BlockedKey,
    GroupDeleted,
    GroupDescription,
    GroupList,
    GroupPartition,
    GroupReset,
    GroupSettingsBody,
    GroupSettingValue,
    GroupSummary,
    GroupTotals,
    InFlightMessage,
    InFlightMessages,
    ResetBody,
    ResetPartition,
)
from penstock.protocols.http.setting_values import split_settings
from penstock.protocols.http.times import read_moment_ms
from penstock.protocols.http.view import NodeView

IN_FLIGHT_MAX = 10_000
_IN_FLIGHT_DEFAULT = 100
_PATH = "/v1/topics/{topic}/groups/{group}"
_DESCRIBED = Answer(meaning="As it stands.", body=GroupDescription)
_SETTINGS_EXAMPLE = '{"settings": {"delivery.order": "key", "delivery.lease.ms": 60000}}'


def group_endpoints(view: NodeView) -> list[Endpoint]:
    """What can be done to queue groups as a whole."""
    return [*_looking(view), *_lending(view), *_configuring(view), *_ending(view)]


def _looking(view: NodeView) -> list[Endpoint]:
    async def list_groups(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"]).name
        names = await view.queues.groups(topic)
        statuses = await asyncio.gather(*(view.queues.status(topic, name) for name in names))
        now_ms = view.now_ms()
        return json_response(
            GroupList(
                groups=[
                    GroupSummary(
                        name=status.group,
                        order=view.queues.settings_of(topic, status.group).order,
                        totals=_totals(status, now_ms),
                    )
                    for status in statuses
                ]
            )
        )

    async def show(request: Request) -> Response:
        topic, group = _existing(view, request)
        return json_response(await _describe(view, topic, group))

    return [
        Endpoint(
            path="/v1/topics/{topic}/groups",
            name="groups",
            summary="The queue groups of a topic",
            description="With how far each one is.",
            parameters=(TOPIC,),
            answers={200: Answer(meaning="By name.", body=GroupList), **FAILURES},
            call=list_groups,
        ),
        Endpoint(
            path=_PATH,
            name="group",
            summary="One queue group",
            description="How far it is in each partition, which keys wait for which message, and"
            " all settings. Partitions without a leader are left out; where none has one, the"
            " request fails.",
            parameters=(TOPIC, GROUP),
            answers={200: _DESCRIBED, **FAILURES},
            call=show,
        ),
    ]


def _lending(view: NodeView) -> list[Endpoint]:
    async def in_flight(request: Request) -> Response:
        topic, group = _existing(view, request)
        count_max = read_count(request, default=_IN_FLIGHT_DEFAULT, most=IN_FLIGHT_MAX)
        found = await view.queues.in_flight(topic, group, count_max=count_max)
        messages = [
            InFlightMessage(
                id=each.id,
                partition=each.partition,
                offset=each.offset,
                consumer=each.consumer,
                attempt=each.attempt,
                delivered_at=each.delivered_ms,
                lease_until=each.lease_until_ms,
            )
            for each in found
        ]
        return json_response(InFlightMessages(messages=messages))

    return [
        Endpoint(
            path=f"{_PATH}/in-flight",
            name="in-flight",
            summary="Messages that are out",
            description="With whom, since when and until when.",
            parameters=(TOPIC, GROUP, query("max", f"How many, up to {IN_FLIGHT_MAX}.")),
            answers={200: Answer(meaning="What is out.", body=InFlightMessages), **FAILURES},
            call=in_flight,
        ),
    ]


def _configuring(view: NodeView) -> list[Endpoint]:
    async def put(request: Request) -> Response:
        body = await read_body(request, GroupSettingsBody)
        topic = view.topics.find(request.path_params["topic"])
        group = request.path_params["group"]
        changed, nulls = split_settings(body.settings)
        known = topic.groups.get(group)
        removed = {*nulls, *(name for name in known or () if name not in changed)}
        await view.queues.configure_group(topic.name, group, changed, sorted(removed))
        described = await _describe(view, topic.name, group)
        return json_response(described, status=201 if known is None else 200)

    async def patch(request: Request) -> Response:
        body = await read_body(request, GroupSettingsBody)
        topic, group = _existing(view, request)
        await view.queues.configure_group(topic, group, *split_settings(body.settings))
        return json_response(await _describe(view, topic, group))

    return [
        Endpoint(
            path=_PATH,
            method="PUT",
            name="put-group",
            summary="Create a queue group or give it other settings",
            description="It has the given settings and no others of its own. A group that exists"
            " stays where it stands.",
            parameters=(TOPIC, GROUP),
            body=GroupSettingsBody,
            example=_SETTINGS_EXAMPLE,
            answers={
                200: _DESCRIBED,
                201: Answer(meaning="It is new.", body=GroupDescription),
                **FAILURES,
            },
            call=from_here(put),
        ),
        Endpoint(
            path=_PATH,
            method="PATCH",
            name="alter-group",
            summary="Change settings of a queue group",
            description="Those that are not named stay; null returns one to the topic's own.",
            parameters=(TOPIC, GROUP),
            body=GroupSettingsBody,
            example=_SETTINGS_EXAMPLE,
            answers={200: _DESCRIBED, **FAILURES},
            call=from_here(patch),
        ),
    ]


def _ending(view: NodeView) -> list[Endpoint]:
    async def reset(request: Request) -> Response:
        body = await read_body(request, ResetBody)
        topic, group = _existing(view, request)
        plans = await view.queues.reset_group(
            topic,
            group,
            to=body.to,
            value=_reset_value(body),
            partition=body.partition,
            is_dry_run=body.dry_run,
        )
        partitions = [
            ResetPartition(partition=each.partition, floor=each.floor, target=each.target)
            for each in plans
        ]
        return json_response(GroupReset(dry_run=body.dry_run, partitions=partitions))

    async def delete(request: Request) -> Response:
        topic, group = _existing(view, request)
        await view.queues.delete_group(topic, group)
        return json_response(GroupDeleted(topic=topic, name=group))

    return [
        Endpoint(
            path=f"{_PATH}/reset",
            method="POST",
            name="reset-group",
            summary="Let a queue group begin anew",
            description="At the earliest or latest message, at an offset, or at a time. Receipts"
            " that are out hold no more and attempts are counted from the start. A reset to the"
            " latest is done with everything that is there.",
            parameters=(TOPIC, GROUP),
            body=ResetBody,
            example='{"to": "time", "time": "2026-11-01T00:00:00Z", "dry_run": true}',
            answers={
                200: Answer(meaning="What was or would be done.", body=GroupReset),
                **FAILURES,
            },
            call=from_here(reset),
        ),
        Endpoint(
            path=_PATH,
            method="DELETE",
            name="delete-group",
            summary="Delete a queue group",
            description="Consumers that go on begin a new one.",
            parameters=(TOPIC, GROUP),
            answers={200: Answer(meaning="It is gone.", body=GroupDeleted), **FAILURES},
            call=from_here(delete),
        ),
    ]


def _existing(view: NodeView, request: Request) -> tuple[str, str]:
    """Return topic and group of the path, or raise which of them is missing."""
    topic, group = view.topics.find(request.path_params["topic"]), request.path_params["group"]
    if group not in topic.groups:
        raise GroupNotFound(f"topic {topic.name!r} has no queue group {group[:80]!r}")
    return topic.name, group


def _reset_value(body: ResetBody) -> int:
    """Return the offset or the time; one that is missing, or given without need, is a mistake."""
    for name, value in (("offset", body.offset), ("time", body.time)):
        if (value is not None) != (body.to == name):
            given = "missing" if value is None else f"{value!r}"
            raise InvalidRequest(
                f"to is {body.to!r} and {name} is {given}; {name} is given when to is {name!r},"
                " and only then"
            )
    if body.time is not None:
        return read_moment_ms("time", body.time)
    return body.offset or 0


async def _describe(view: NodeView, topic: str, group: str) -> GroupDescription:
    status = await view.queues.status(topic, group)
    return GroupDescription(
        topic=topic,
        name=group,
        totals=_totals(status, view.now_ms()),
        partitions=[_partition(each) for each in status.partitions],
        blocked_keys=[
            _blocked_key(partition.partition, blocked)
            for partition in status.partitions
            for blocked in partition.blocked_keys
        ],
        settings=_settings(view, topic, group),
    )


def _partition(status: PartitionGroupStatus) -> GroupPartition:
    return GroupPartition(
        partition=status.partition,
        floor=status.floor,
        end=status.end,
        unsettled=status.unsettled,
        in_flight=status.in_flight,
        waiting=status.waiting,
        dying=status.dying,
        oldest=status.oldest_unsettled_ms,
    )


def _blocked_key(partition: int, blocked: BlockedKeyStatus) -> BlockedKey:
    key, encoding = to_text(blocked.key)
    return BlockedKey(
        partition=partition,
        key=key,
        key_encoding=encoding,
        blocker=blocked.blocker,
        waiting=blocked.waiting,
    )


def _totals(status: GroupStatus, now_ms: int) -> GroupTotals:
    oldest = _oldest(status.partitions)
    return GroupTotals(
        unsettled=status.unsettled,
        in_flight=status.in_flight,
        waiting=sum(each.waiting for each in status.partitions),
        dying=sum(each.dying for each in status.partitions),
        oldest=oldest,
        lag_s=0.0 if oldest is None else max(0, now_ms - oldest) / 1000,
    )


def _oldest(partitions: Sequence[PartitionGroupStatus]) -> int | None:
    times: Iterable[int | None] = (each.oldest_unsettled_ms for each in partitions)
    return min((each for each in times if each is not None), default=None)


def _settings(view: NodeView, topic: str, group: str) -> dict[str, GroupSettingValue]:
    """Return the settings by the names that they are given by."""
    own = view.topics.find(topic).groups.get(group, {})
    meanings = {
        each.definition.name: each.definition.meaning for each in view.topics.settings(topic)
    }
    resolved = msgspec.structs.asdict(view.queues.settings_of(topic, group))
    values = {f"delivery.{name.replace('_', '.')}": value for name, value in resolved.items()}
    return {
        name: GroupSettingValue(value=str(value), is_own=name in own, meaning=meanings[name])
        for name, value in values.items()
    }

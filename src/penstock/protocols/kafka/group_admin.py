"""ListGroups, DescribeGroups and DeleteGroups."""

from dataclasses import replace
from typing import Any

from kio.schema.delete_groups.v2 import request as delete_in
from kio.schema.delete_groups.v2 import response as delete_out
from kio.schema.describe_groups.v6 import request as describe_in
from kio.schema.describe_groups.v6 import response as describe_out
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5 import request as list_in
from kio.schema.list_groups.v5 import response as list_out
from kio.schema.types import GroupId
from kio.static.primitive import i32

from penstock.broker import Broker
from penstock.errors import GroupNotFound, InvalidGroupId, NotCoordinator, PenstockError
from penstock.groups import DeleteGroup, DescribeGroup, GroupDescribed, GroupsListed
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE
from penstock.protocols.kafka.errors import error_code, error_fields

_DEAD = "Dead"
_SHARE = "share"
_MISSING_IS_ERROR_FROM = 6
_NOT_ASKED_FOR = -(2**31)
# Everybody may read, delete and describe a group; the bits are those of Kafka's AclOperation.
_ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8


def apis() -> list[Api]:
    """Return the three APIs."""
    return [
        plain_api(
            15, "DescribeGroups", range(7), _describe_groups, downgrade=_missing_groups_as_dead
        ),
        plain_api(16, "ListGroups", range(6), _list_groups),
        plain_api(42, "DeleteGroups", range(3), _delete_groups),
    ]


def check_coordinator(group_id: str, broker: Broker) -> None:
    """Raise when another node answers for a share group."""
    if not group_id:
        raise InvalidGroupId("a share group needs a name, an empty one was given")
    node = broker.coordinator_of(group_id)
    if node.node_id != broker.node_id:
        raise NotCoordinator(f"share group {group_id!r} is coordinated by node {node.node_id}")


def check_no_share_group(group_id: str, broker: Broker) -> None:
    """Raise when a consumer group is asked for by the name of a share group."""
    if broker.share.is_name(group_id):
        raise GroupNotFound(f"{group_id!r} is a share group, not a consumer group")


async def check_no_consumer_group(group_id: str, broker: Broker) -> None:
    """Raise when a share group is asked for by the name of a consumer group.

    Both kinds share their names, as in Kafka: deleting one by its name must not hit the other. And
    they share their coordinator, which asks its own shard: no other node can have such a group.
    """
    if not broker.share.is_name(group_id) and await broker.groups.is_known(group_id):
        raise GroupNotFound(f"{group_id!r} is a consumer group, not a share group")


def authorized_operations(*, is_asked_for: bool) -> i32:
    """Return what the client may do with a group, when it wants to know."""
    return i32(_ALL_OPERATIONS if is_asked_for else _NOT_ASKED_FOR)


async def _list_groups(
    request: list_in.ListGroupsRequest, context: Context
) -> list_out.ListGroupsResponse:
    listed: list[list_out.ListedGroup] = []
    code = ErrorCode.none
    try:
        for answer in await context.broker.groups.list_groups(
            frozenset(request.states_filter), frozenset(request.types_filter)
        ):
            assert isinstance(answer, GroupsListed), answer
            listed += [
                list_out.ListedGroup(
                    group_id=GroupId(group.group_id),
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
                for group in answer.groups
            ]
        listed += _share_groups(request, context.broker)
    except PenstockError as error:
        code = error_code(error, context.broker)
    return list_out.ListGroupsResponse(
        throttle_time=NO_THROTTLE, error_code=code, groups=tuple(listed)
    )


def _share_groups(request: list_in.ListGroupsRequest, broker: Broker) -> list[list_out.ListedGroup]:
    """Return the share groups that this node coordinates and that pass the filters."""
    states = {state.casefold() for state in request.states_filter}
    types = {group_type.casefold() for group_type in request.types_filter}
    if types and _SHARE not in types:
        return []
    here = [
        (name, broker.share.members_of(name).state)
        for name in broker.share.names()
        if broker.coordinator_of(name).node_id == broker.node_id
    ]
    return [
        list_out.ListedGroup(
            group_id=GroupId(name), protocol_type=_SHARE, group_state=state, group_type=_SHARE
        )
        for name, state in here
        if not states or state.casefold() in states
    ]


async def _describe_groups(
    request: describe_in.DescribeGroupsRequest, context: Context
) -> describe_out.DescribeGroupsResponse:
    operations = authorized_operations(is_asked_for=request.include_authorized_operations)
    return describe_out.DescribeGroupsResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(
            [await _described(group_id, context, operations) for group_id in request.groups]
        ),
    )


async def _described(
    group_id: GroupId, context: Context, operations: i32
) -> describe_out.DescribedGroup:
    try:
        group = await context.broker.groups.ask_currently(
            group_id, lambda ticket: DescribeGroup(ticket=ticket, group_id=group_id)
        )
    except PenstockError as error:
        return describe_out.DescribedGroup(
            **error_fields(error, context.broker),
            group_id=group_id,
            group_state=_DEAD,
            protocol_type="",
            protocol_data="",
            members=(),
        )
    assert isinstance(group, GroupDescribed), group
    return describe_out.DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            describe_out.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=operations,
    )


def _missing_groups_as_dead(response: describe_out.DescribeGroupsResponse, version: int) -> Any:
    """Versions before 6 show a group that does not exist as one that is dead."""
    if version >= _MISSING_IS_ERROR_FROM:
        return response
    groups = tuple(
        replace(group, error_code=ErrorCode.none)
        if group.error_code is ErrorCode.group_id_not_found
        else group
        for group in response.groups
    )
    return replace(response, groups=groups)


async def _delete_groups(
    request: delete_in.DeleteGroupsRequest, context: Context
) -> delete_out.DeleteGroupsResponse:
    return delete_out.DeleteGroupsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            [
                delete_out.DeletableGroupResult(
                    group_id=group_id, error_code=await _deleted(group_id, context)
                )
                for group_id in request.groups_names
            ]
        ),
    )


async def _deleted(group_id: GroupId, context: Context) -> ErrorCode:
    try:
        if context.broker.share.is_name(group_id):
            await _delete_share_group(group_id, context.broker)
        else:
            await _delete_consumer_group(group_id, context.broker)
    except PenstockError as error:
        return error_code(error, context.broker)
    return ErrorCode.none


async def _delete_share_group(group_id: GroupId, broker: Broker) -> None:
    check_coordinator(group_id, broker)
    await broker.share.delete(group_id)


async def _delete_consumer_group(group_id: GroupId, broker: Broker) -> None:
    try:
        await broker.groups.ask(
            group_id, lambda ticket: DeleteGroup(ticket=ticket, group_id=group_id)
        )
    except GroupNotFound:
        if group_id not in broker.metadata.share_groups:
            raise
        # A share group that was only configured, or whose deletion was cut short.
        await _delete_share_group(group_id, broker)

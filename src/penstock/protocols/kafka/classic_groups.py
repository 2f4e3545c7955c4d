"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: groups whose members assign the partitions."""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4 import request as beat_in
from kio.schema.heartbeat.v4 import response as beat_out
from kio.schema.join_group.v9 import request as join_in
from kio.schema.join_group.v9 import response as join_out
from kio.schema.leave_group.v2 import response as single_leave_out
from kio.schema.leave_group.v5 import request as leave_in
from kio.schema.leave_group.v5 import response as leave_out
from kio.schema.sync_group.v5 import request as sync_in
from kio.schema.sync_group.v5 import response as sync_out
from kio.static.primitive import i32

from penstock.broker import Broker
from penstock.errors import InconsistentGroupProtocol, MemberIdRequired, PenstockError
from penstock.groups import (
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Left,
    Synced,
    SyncGroup,
)
from penstock.protocols.kafka.api import Api, Context, Reply, Request, plain_api
from penstock.protocols.kafka.codec import (
    NO_THROTTLE,
    carry_over,
    decode_request,
    encode_response,
    milliseconds,
)
from penstock.protocols.kafka.errors import error_code

_JOIN_VERSIONS = range(10)
_KNOWN_ID_FROM = 4
_SKIPPED_ASSIGNMENT_FROM = 9
_SEVERAL_LEAVERS_FROM = 3


def apis() -> list[Api]:
    """Return the four APIs."""
    return [
        # What a member must do first depends on the version, so the request is not just upgraded.
        Api(
            11, "JoinGroup", _JOIN_VERSIONS[0], _JOIN_VERSIONS[-1], _start_join_group, may_wait=True
        ),
        plain_api(12, "Heartbeat", range(5), _heartbeat),
        plain_api(
            13,
            "LeaveGroup",
            range(6),
            _leave_group,
            upgrade=_upgrade_leave,
            downgrade=_leave_result,
        ),
        plain_api(14, "SyncGroup", range(6), _sync_group, may_wait=True),
    ]


def _start_join_group(request: Request, reply: Reply) -> asyncio.Task[None]:
    message = decode_request(request.frame, request.header)
    return asyncio.create_task(
        _join_group(request, carry_over(message, join_in.JoinGroupRequest), reply)
    )


async def _join_group(request: Request, message: join_in.JoinGroupRequest, reply: Reply) -> None:
    try:
        joined = await _joined(message, request)
        response = _join_answer(joined)
    except PenstockError as error:
        response = _join_refusal(message, error, request.context.broker)
    reply([encode_response(request.header, response)])


async def _joined(message: join_in.JoinGroupRequest, request: Request) -> Joined:
    groups, client = request.context.broker.groups, request.context.client
    if request.context.broker.share.is_name(message.group_id):
        raise InconsistentGroupProtocol(f"{message.group_id!r} is a share group")
    version = request.header.version
    session_ms = milliseconds(message.session_timeout)
    rebalance_ms = milliseconds(message.rebalance_timeout)
    answer = await groups.ask(
        message.group_id,
        lambda ticket: JoinGroup(
            ticket=ticket,
            group_id=message.group_id,
            member_id=message.member_id,
            candidate_id=groups.new_member_id(message.group_instance_id or client.client_id),
            instance_id=message.group_instance_id,
            client_id=client.client_id,
            client_host=client.host,
            session_ms=session_ms,
            # Version 0 has one timeout for both.
            rebalance_ms=rebalance_ms if rebalance_ms >= 0 else session_ms,
            protocol_type=message.protocol_type,
            protocols=tuple((each.name, bytes(each.metadata)) for each in message.protocols),
            must_know_id=version >= _KNOWN_ID_FROM,
            can_skip_assignment=version >= _SKIPPED_ASSIGNMENT_FROM,
        ),
    )
    assert isinstance(answer, Joined), answer
    return answer


def _join_answer(joined: Joined) -> join_out.JoinGroupResponse:
    return join_out.JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        generation_id=i32(joined.generation),
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            join_out.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in joined.members
        ),
    )


def _join_refusal(
    message: join_in.JoinGroupRequest, error: PenstockError, broker: Broker
) -> join_out.JoinGroupResponse:
    member_id = error.member_id if isinstance(error, MemberIdRequired) else message.member_id
    return join_out.JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error, broker),
        protocol_name=None,
        leader="",
        member_id=member_id,
        members=(),
    )


async def _sync_group(
    request: sync_in.SyncGroupRequest, context: Context
) -> sync_out.SyncGroupResponse:
    try:
        answer = await context.broker.groups.ask(
            request.group_id,
            lambda ticket: SyncGroup(
                ticket=ticket,
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                generation=request.generation_id,
                protocol_type=request.protocol_type,
                protocol=request.protocol_name,
                assignments={
                    each.member_id: bytes(each.assignment) for each in request.assignments
                },
            ),
        )
    except PenstockError as error:
        return sync_out.SyncGroupResponse(
            throttle_time=NO_THROTTLE, error_code=error_code(error, context.broker), assignment=b""
        )
    assert isinstance(answer, Synced), answer
    return sync_out.SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )


async def _heartbeat(
    request: beat_in.HeartbeatRequest, context: Context
) -> beat_out.HeartbeatResponse:
    code = ErrorCode.none
    try:
        await context.broker.groups.ask(
            request.group_id,
            lambda ticket: Heartbeat(
                ticket=ticket,
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                generation=request.generation_id,
            ),
        )
    except PenstockError as error:
        code = error_code(error, context.broker)
    return beat_out.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)


async def _leave_group(
    request: leave_in.LeaveGroupRequest, context: Context
) -> leave_out.LeaveGroupResponse:
    try:
        answer = await context.broker.groups.ask(
            request.group_id,
            lambda ticket: LeaveGroup(
                ticket=ticket,
                group_id=request.group_id,
                leavers=tuple(
                    Leaver(each.member_id, each.group_instance_id) for each in request.members
                ),
            ),
        )
    except PenstockError as error:
        return leave_out.LeaveGroupResponse(
            throttle_time=NO_THROTTLE, error_code=error_code(error, context.broker), members=()
        )
    assert isinstance(answer, Left), answer
    return leave_out.LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        members=tuple(
            leave_out.MemberResponse(
                member_id=leaver.member_id,
                group_instance_id=leaver.group_instance_id,
                error_code=error_code(error, context.broker),
            )
            for leaver, error in zip(request.members, answer.results, strict=True)
        ),
    )


def _upgrade_leave(message: Any) -> Any:
    """Versions before 3 name one member."""
    if message.__version__ >= _SEVERAL_LEAVERS_FROM:
        return message
    return leave_in.LeaveGroupRequest(
        group_id=message.group_id, members=(leave_in.MemberIdentity(member_id=message.member_id),)
    )


def _leave_result(response: leave_out.LeaveGroupResponse, version: int) -> Any:
    """Versions before 3 have no results of members: that of the only one is the result."""
    if version >= _SEVERAL_LEAVERS_FROM:
        return response
    codes = [response.error_code, *(member.error_code for member in response.members)]
    return single_leave_out.LeaveGroupResponse(
        throttle_time=response.throttle_time, error_code=codes[-1]
    )

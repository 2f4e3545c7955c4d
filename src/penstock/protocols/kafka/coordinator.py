"""FindCoordinator: which node looks after a group."""

from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3 import response as single_out
from kio.schema.find_coordinator.v6 import request as wire_in
from kio.schema.find_coordinator.v6 import response as wire_out
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from penstock.errors import InvalidRequest, PenstockError
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE
from penstock.protocols.kafka.errors import count_error, error_code

_GROUP = 0
_TRANSACTION = 1
_SEVERAL_KEYS_FROM = 4


def apis() -> list[Api]:
    """Return the API. Up to version 3 it carries one key, later versions carry several."""
    return [
        plain_api(
            10,
            "FindCoordinator",
            range(7),
            _find_coordinator,
            upgrade=_upgrade,
            downgrade=_downgrade,
        )
    ]


async def _find_coordinator(
    request: wire_in.FindCoordinatorRequest, context: Context
) -> wire_out.FindCoordinatorResponse:
    return wire_out.FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        coordinators=tuple(
            _group_coordinator(key, context)
            if request.key_type == _GROUP
            else _no_coordinator(key, int(request.key_type), context)
            for key in request.coordinator_keys
        ),
    )


def _group_coordinator(key: str, context: Context) -> wire_out.Coordinator:
    try:
        node = context.broker.coordinator_of(key)
    except PenstockError as error:
        return _nowhere(key, error_code(error, context.broker), str(error))
    return wire_out.Coordinator(
        key=key,
        node_id=BrokerId(node.node_id),
        host=node.kafka_host,
        port=i32(node.kafka_port),
        error_code=ErrorCode.none,
        error_message=None,
    )


def _no_coordinator(key: str, key_type: int, context: Context) -> wire_out.Coordinator:
    if key_type == _TRANSACTION:
        # What the error says must reach the user. librdkafka asks again until it times out, unless
        # the code is about authorization. Java's producer shows our words with any code but that of
        # transactional ids, which it has words of its own for. This one ends both at once.
        code = ErrorCode.cluster_authorization_failed
        error = InvalidRequest(
            "transactions are not supported; leave out transactional.id: enable.idempotence alone"
            " keeps retries from storing a batch twice"
        )
    else:
        code = ErrorCode.invalid_request
        error = InvalidRequest(
            f"coordinators are found for groups (key type {_GROUP}), not for type {key_type}"
        )
    count_error(error, context.broker)
    return _nowhere(key, code, str(error))


def _nowhere(key: str, code: ErrorCode, message: str) -> wire_out.Coordinator:
    return wire_out.Coordinator(
        key=key,
        node_id=BrokerId(-1),
        host="",
        port=i32(-1),
        error_code=code,
        error_message=message,
    )


def _upgrade(message: Any) -> Any:
    if message.__version__ >= _SEVERAL_KEYS_FROM:
        return message
    return wire_in.FindCoordinatorRequest(
        key_type=getattr(message, "key_type", wire_in.FindCoordinatorRequest().key_type),
        coordinator_keys=(message.key,),
    )


def _downgrade(response: wire_out.FindCoordinatorResponse, version: int) -> Any:
    if version >= _SEVERAL_KEYS_FROM:
        return response
    (found,) = response.coordinators
    return single_out.FindCoordinatorResponse(
        throttle_time=response.throttle_time,
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )

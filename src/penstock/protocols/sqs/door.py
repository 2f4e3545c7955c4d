"""The SQS door: one request in, one answer out, whatever happened in between."""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.protocols.sqs.codec import Call, Reply, decode_call, encode_error, encode_reply
from penstock.protocols.sqs.errors import SqsError, answered_code
from penstock.protocols.sqs.mover import Mover
from penstock.protocols.sqs.moving import MoveActions
from penstock.protocols.sqs.options import SqsOptions
from penstock.protocols.sqs.queues import QueueActions
from penstock.protocols.sqs.receiving import ReceiveActions
from penstock.protocols.sqs.sending import SendActions
from penstock.protocols.sqs.signatures import SignedRequest, check_signature
from penstock.protocols.sqs.view import SqsView

# The largest batch where each of its bytes is escaped, as in `\u003c`, and room for the rest.
BODY_BYTES_MAX = 8 * 1024 * 1024
_RECEIVE = "ReceiveMessage"


class HttpRequest(Protocol):
    """A request as it came; names of headers are in lower case, path and query as sent."""

    @property
    def method(self) -> str:
        """GET or POST."""

    @property
    def site(self) -> str:
        """What the addresses of queues begin with for this caller."""

    @property
    def path(self) -> str:
        """The path."""

    @property
    def query(self) -> str:
        """What follows the question mark."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""

    @property
    def body(self) -> bytes:
        """The body."""


Action = Callable[[Mapping[str, Any], str], Awaitable[dict[str, Any]]]


class SqsDoor:
    """Answers `POST /` and requests to the address of a queue."""

    def __init__(self, view: SqsView, options: SqsOptions) -> None:
        queues = QueueActions(view, options)
        sending = SendActions(view, queues)
        receiving = ReceiveActions(view, queues, options)
        self._view = view
        self._access_keys = options.access_keys
        self._mover = Mover(view)
        moving = MoveActions(view, queues, options, on_started=self._mover.look)
        self._actions: dict[str, Action] = {
            "AddPermission": queues.accept_permission,
            "CancelMessageMoveTask": moving.cancel,
            "ChangeMessageVisibility": receiving.change_visibility,
            "ChangeMessageVisibilityBatch": receiving.change_visibility_batch,
            "CreateQueue": queues.create,
            "DeleteMessage": receiving.delete,
            "DeleteMessageBatch": receiving.delete_batch,
            "DeleteQueue": queues.delete,
            "GetQueueAttributes": queues.get_attributes,
            "GetQueueUrl": queues.get_url,
            "ListDeadLetterSourceQueues": queues.list_dead_letter_sources,
            "ListMessageMoveTasks": moving.list,
            "ListQueueTags": queues.list_tags,
            "ListQueues": queues.list,
            "PurgeQueue": queues.purge,
            _RECEIVE: receiving.receive,
            "RemovePermission": queues.accept_permission,
            "SendMessage": sending.send,
            "SendMessageBatch": sending.send_batch,
            "SetQueueAttributes": queues.set_attributes,
            "StartMessageMoveTask": moving.start,
            "TagQueue": queues.tag,
            "UntagQueue": queues.untag,
        }

    async def run(self) -> None:
        """Carry out what goes on by itself, until cancelled."""
        await self._mover.run()

    async def answer(self, request: HttpRequest) -> Reply:
        """Answer one request."""
        request_id = str(uuid.uuid4())
        is_json = "x-amz-target" in request.headers
        try:
            if len(request.body) > BODY_BYTES_MAX:
                raise SqsError(
                    SqsError.INVALID_PARAMETER, f"The request is larger than {BODY_BYTES_MAX} bytes"
                )
            self._check_signature(request)
            call = decode_call(request.headers, request.body, request.query)
            return encode_reply(call, await self._run(call, request), request_id)
        except (SqsError, PenstockError) as error:
            code = answered_code(error, self._view.statistics)
            return encode_error(code, str(error), request_id, is_json=is_json)

    def is_for_callers_alone(self, request: HttpRequest) -> bool:
        """True when a request makes no sense without its caller, to whom messages are handed."""
        target = request.headers.get("x-amz-target")
        if target is not None:
            return target.endswith(f".{_RECEIVE}")
        field = f"Action={_RECEIVE}"
        return field in request.query or field.encode() in request.body

    def _check_signature(self, request: HttpRequest) -> None:
        if self._access_keys:
            signed = SignedRequest(
                request.method, request.path, request.query, request.headers, request.body
            )
            check_signature(signed, self._access_keys, now_s=self._view.now_ms() / 1_000)

    async def _run(self, call: Call, request: HttpRequest) -> dict[str, Any]:
        action = self._actions.get(call.action)
        if action is None:
            raise SqsError(
                SqsError.INVALID_ACTION,
                f"The action {call.action[:80]} is not valid for this endpoint.",
            )
        self._view.statistics.count_request("sqs", call.action)
        parameters = call.parameters
        if not call.is_json and "QueueUrl" not in parameters and request.path.strip("/"):
            parameters = {**parameters, "QueueUrl": f"{request.site}{request.path}"}
        return await action(parameters, request.site)

"""The SQS door: one request in, one answer out, whatever happened in between."""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import PenstockError
from penstock.protocols.sqs.codec import Call, Reply, decode_call, encode_error, encode_reply
from penstock.protocols.sqs.errors import SqsError, code_of
from penstock.protocols.sqs.mover import Mover
from penstock.protocols.sqs.moving import MoveActions
from penstock.protocols.sqs.options import SqsOptions
from penstock.protocols.sqs.queues import QueueActions
from penstock.protocols.sqs.receiving import ReceiveActions
from penstock.protocols.sqs.sending import SendActions
from penstock.protocols.sqs.signatures import SignedRequest, check_signature
from penstock.protocols.sqs.view import SqsView

BODY_BYTES_MAX = 4 * 1024 * 1024

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
            "ReceiveMessage": receiving.receive,
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

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        request_id = str(uuid.uuid4())
        is_json = "x-amz-target" in request.headers
        try:
            body = await _body(request)
            self._check_signature(request, body)
            call = decode_call(request.headers, body, request.url.query)
            answer = await self._run(call, request)
            reply = encode_reply(call, answer, request_id)
        except (SqsError, PenstockError) as error:
            reply = encode_error(code_of(error), str(error), request_id, is_json=is_json)
        return _response(reply)

    def _check_signature(self, request: Request, body: bytes) -> None:
        if self._access_keys:
            signed = SignedRequest(
                request.method,
                request.scope["raw_path"].decode(),
                request.url.query,
                request.headers,
                body,
            )
            check_signature(signed, self._access_keys, now_s=self._view.now_ms() / 1_000)

    async def _run(self, call: Call, request: Request) -> dict[str, Any]:
        action = self._actions.get(call.action)
        if action is None:
            raise SqsError(
                SqsError.INVALID_ACTION,
                f"The action {call.action[:80]} is not valid for this endpoint.",
            )
        base_url = f"{request.url.scheme}://{request.url.netloc}"
        parameters = call.parameters
        if not call.is_json and "QueueUrl" not in parameters and request.url.path.strip("/"):
            parameters = {**parameters, "QueueUrl": str(request.url)}
        return await action(parameters, base_url)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise SqsError(
                SqsError.INVALID_PARAMETER, f"The request is larger than {BODY_BYTES_MAX} bytes"
            )
    return bytes(body)


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, reply.headers)

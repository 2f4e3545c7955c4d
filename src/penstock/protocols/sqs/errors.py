"""The errors of the SQS door: the real service's own codes, and the table from ours to them."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.broker import Statistics
from penstock.errors import (
    Conflict,
    GroupNotFound,
    InvalidReceipt,
    InvalidRequest,
    InvalidSetting,
    LeaseExpired,
    PenstockError,
    TopicExists,
    TopicNotFound,
    Unavailable,
)


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One error: its name in JSON, and the older code that SDKs still compare."""

    name: str
    query_code: str
    status: int = 400

    @property
    def fault(self) -> str:
        """Who is to blame, as the query protocol names it."""
        return "Sender" if self.status < 500 else "Receiver"


def _legacy(name: str) -> ErrorCode:
    return ErrorCode(name, f"AWS.SimpleQueueService.{name}")


def _plain(name: str) -> ErrorCode:
    return ErrorCode(name, name)


class SqsError(Exception):
    """What this door refuses by itself, under a code of the real service."""

    BATCH_IDS_NOT_DISTINCT: ClassVar = _legacy("BatchEntryIdsNotDistinct")
    BATCH_TOO_LONG: ClassVar = _legacy("BatchRequestTooLong")
    EMPTY_BATCH: ClassVar = _legacy("EmptyBatchRequest")
    INVALID_ACTION: ClassVar = _plain("InvalidAction")
    INVALID_ATTRIBUTE_NAME: ClassVar = _plain("InvalidAttributeName")
    INVALID_ATTRIBUTE_VALUE: ClassVar = _plain("InvalidAttributeValue")
    INVALID_BATCH_ENTRY_ID: ClassVar = _legacy("InvalidBatchEntryId")
    INVALID_CONTENTS: ClassVar = _plain("InvalidMessageContents")
    INVALID_PARAMETER: ClassVar = _plain("InvalidParameterValue")
    MALFORMED: ClassVar = _plain("SerializationException")
    MISSING_PARAMETER: ClassVar = _plain("MissingParameter")
    NOT_IN_FLIGHT: ClassVar = _legacy("MessageNotInflight")
    PURGE_IN_PROGRESS: ClassVar = ErrorCode(
        "PurgeQueueInProgress", "AWS.SimpleQueueService.PurgeQueueInProgress", 403
    )
    QUEUE_EXISTS: ClassVar = ErrorCode("QueueNameExists", "QueueAlreadyExists")
    QUEUE_MISSING: ClassVar = ErrorCode(
        "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"
    )
    RESOURCE_MISSING: ClassVar = ErrorCode(
        "ResourceNotFoundException", "ResourceNotFoundException", 404
    )
    RECEIPT_INVALID: ClassVar = ErrorCode("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 404)
    SIGNATURE_INCOMPLETE: ClassVar = _plain("IncompleteSignature")
    SIGNATURE_WRONG: ClassVar = ErrorCode("SignatureDoesNotMatch", "SignatureDoesNotMatch", 403)
    TOKEN_INVALID: ClassVar = ErrorCode("InvalidClientTokenId", "InvalidClientTokenId", 403)
    TOKEN_MISSING: ClassVar = ErrorCode(
        "MissingAuthenticationToken", "MissingAuthenticationToken", 403
    )
    TOO_MANY_ENTRIES: ClassVar = _legacy("TooManyEntriesInBatchRequest")
    UNAVAILABLE: ClassVar = ErrorCode("ServiceUnavailable", "ServiceUnavailable", 503)
    UNSUPPORTED: ClassVar = _legacy("UnsupportedOperation")
    INTERNAL: ClassVar = ErrorCode("InternalFailure", "InternalFailure", 500)

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


# The first class that an error belongs to decides.
ERROR_CODES: tuple[tuple[type[PenstockError], ErrorCode], ...] = (
    (TopicNotFound, SqsError.QUEUE_MISSING),
    (TopicExists, SqsError.QUEUE_EXISTS),
    (InvalidReceipt, SqsError.RECEIPT_INVALID),
    # Nobody has received from the queue since it was created, so the receipt is not one of its own.
    (GroupNotFound, SqsError.RECEIPT_INVALID),
    (LeaseExpired, SqsError.INVALID_PARAMETER),
    (InvalidSetting, SqsError.INVALID_ATTRIBUTE_VALUE),
    (InvalidRequest, SqsError.INVALID_PARAMETER),
    (Unavailable, SqsError.UNAVAILABLE),
    (Conflict, SqsError.INVALID_PARAMETER),
    (PenstockError, SqsError.INTERNAL),
)


def answered_code(error: PenstockError | SqsError, statistics: Statistics) -> ErrorCode:
    """Return the code under which a caller sees an error, and count it by its own name."""
    if isinstance(error, SqsError):
        statistics.count_error("sqs", error.code.name)
        return error.code
    statistics.count_error("sqs", type(error).__name__)
    return next(code for kind, code in ERROR_CODES if isinstance(error, kind))

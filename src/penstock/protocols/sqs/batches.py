"""Batches of up to ten entries, each of which succeeds or fails by itself."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from penstock.broker import Statistics
from penstock.errors import PenstockError
from penstock.protocols.sqs.errors import SqsError, answered_code

ENTRIES_MAX = 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")

Entry = Mapping[str, Any]
EntryResult = dict[str, Any] | PenstockError | SqsError


def read_entries(parameters: Mapping[str, Any]) -> list[Entry]:
    """Return the entries of a batch, or raise what is wrong with the batch as a whole."""
    entries = parameters.get("Entries") or []
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise SqsError(SqsError.INVALID_PARAMETER, "Entries is not a list of objects")
    if not entries:
        raise SqsError(SqsError.EMPTY_BATCH, "There should be at least one entry in the request.")
    if len(entries) > ENTRIES_MAX:
        raise SqsError(
            SqsError.TOO_MANY_ENTRIES,
            f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent"
            f" {len(entries)}.",
        )
    ids = [each.get("Id") for each in entries]
    for each in ids:
        if not isinstance(each, str) or _ID.fullmatch(each) is None:
            raise SqsError(
                SqsError.INVALID_BATCH_ENTRY_ID,
                "A batch entry id can only contain alphanumeric characters, hyphens and"
                f" underscores. It can be at most 80 letters long; {each!r} was given.",
            )
    if len(set(ids)) != len(ids):
        raise SqsError(
            SqsError.BATCH_IDS_NOT_DISTINCT, "Two or more batch entries have the same Id."
        )
    return entries


async def answer_batch(
    entries: list[Entry],
    run: Callable[[list[Entry]], Awaitable[list[EntryResult]]],
    statistics: Statistics,
) -> dict[str, Any]:
    """Run a batch and report what became of each entry."""
    results = await run(entries)
    successful, failed = [], []
    for entry, result in zip(entries, results, strict=True):
        if isinstance(result, dict):
            successful.append({"Id": entry["Id"], **result})
        else:
            code = answered_code(result, statistics)
            failed.append(
                {
                    "Id": entry["Id"],
                    "SenderFault": code.fault == "Sender",
                    "Code": code.query_code,
                    "Message": str(result),
                }
            )
    answer: dict[str, Any] = {"Successful": successful}
    if failed:
        answer["Failed"] = failed
    return answer

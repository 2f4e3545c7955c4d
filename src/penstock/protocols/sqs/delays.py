"""The delay of a FIFO queue, which holds for messages that wait already, as with the service.

If they kept the time that they were sent with, messages that are sent under a shorter delay would
pass earlier ones of their group.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from penstock.broker import QUEUE_NUMBERS, Scheduled
from penstock.errors import Unavailable
from penstock.protocols.sqs.attributes import SENT_HEADER
from penstock.protocols.sqs.view import SqsView

_PAGE_MESSAGES_MAX = 1_000
_RELEASE_S_MAX = 5.0
_LOOK_AGAIN_S = 0.01
_DELAY_MS_MAX = QUEUE_NUMBERS["DelaySeconds"].most * 1_000
_DIGITS_MAX = 15


async def apply_delay(view: SqsView, topic: str, delay_s: int) -> None:
    """Let messages that wait be due when a delay says; return when those that are due are out."""
    now_ms = view.now_ms()
    after = ""
    # What is moved behind this page is met again, and stays.
    while page := await view.schedule.list(topic, count_max=_PAGE_MESSAGES_MAX, after=after):
        after = page[-1].cursor
        moves = _moves(page, delay_s * 1_000, now_ms)
        outcomes = await asyncio.gather(
            *(view.schedule.move(topic, ids, due_ms) for due_ms, ids in moves.items())
        )
        for outcome in (each for some in outcomes for each in some):
            if isinstance(outcome, Unavailable):
                raise outcome
    await _wait_released(view, topic, now_ms)


def _moves(page: Sequence[Scheduled], delay_ms: int, now_ms: int) -> dict[int, list[str]]:
    """Return the ids of messages that get another time, by that time.

    Those of one time leave in the order in which they came.
    """
    moves: defaultdict[int, list[str]] = defaultdict(list)
    for each in page:
        sent_ms = _sent_ms(each)
        if sent_ms is not None:
            due_ms = max(now_ms, sent_ms + delay_ms)
            if due_ms != max(now_ms, each.due_ms):
                moves[due_ms].append(each.id)
    return moves


def _sent_ms(scheduled: Scheduled) -> int | None:
    """Return when a message was sent; None when its time is another than its queue gave it."""
    kept = dict(scheduled.headers).get(SENT_HEADER) or b""
    # Any client can write the header.
    if not kept.isdigit() or len(kept) > _DIGITS_MAX:
        return None
    return int(kept) if 0 <= scheduled.due_ms - int(kept) <= _DELAY_MS_MAX else None


async def _wait_released(view: SqsView, topic: str, now_ms: int) -> None:
    """Wait until what is sent next comes behind what is due now."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + _RELEASE_S_MAX
    while loop.time() < until_s:
        first = await view.schedule.list(topic, count_max=1)
        if not first or first[0].due_ms > now_ms:
            return
        await asyncio.sleep(_LOOK_AGAIN_S)

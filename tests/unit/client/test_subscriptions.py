"""What a loop over messages hands out, and what it does not."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from penstock.client.deliveries import Leased, Refusal
from penstock.client.subscriptions import (
    AsyncLeaseKeeper,
    AsyncSubscription,
    LeaseKeeper,
    Subscription,
)
from penstock.errors import LeaseExpired, NotLeader

LEASE_S = 3_600


@dataclass(frozen=True)
class Out:
    receipt: str
    topic: str = "orders"
    group: str = "billing"
    lease_until_ms: int = 0


FIRST, LOST, AGAIN, SECOND = Out("1"), Out("2"), Out("3"), Out("4")


def test_a_message_whose_lease_was_lost_while_it_waited_is_not_handed_out() -> None:
    batches = [[FIRST, LOST], [AGAIN]]
    keeper = LeaseKeeper(lambda _messages, _lease_s: [])
    loop = Subscription(lambda: batches.pop(0), keeper, lambda _: None, lease_s=LEASE_S)

    seen = [next(loop)]
    # As the keeper does with what a node refuses to extend.
    keeper.drop([LOST])
    seen.append(next(loop))
    loop.close()
    keeper.close()

    assert seen == [FIRST, AGAIN]


def test_the_same_holds_on_an_event_loop() -> None:
    batches = [[FIRST, LOST], [AGAIN]]

    async def receive() -> list[Out]:
        return batches.pop(0)

    async def extend(_messages: Sequence[Leased], _lease_s: float) -> list[Refusal[Leased]]:
        return []

    async def give_back(_messages: Sequence[Out]) -> None:
        raise AssertionError("nothing is left")

    async def scenario() -> list[Out]:
        keeper = AsyncLeaseKeeper(extend)
        loop = AsyncSubscription(receive, keeper, give_back, lease_s=LEASE_S)
        seen = [await anext(loop)]
        keeper.drop([LOST])
        seen.append(await anext(loop))
        await loop.close()
        await keeper.close()
        return seen

    assert asyncio.run(scenario()) == [FIRST, AGAIN]


SHORT_S = 0.03
REFUSALS = [[Refusal(FIRST, NotLeader("nobody leads"))], [], [Refusal(FIRST, LeaseExpired("late"))]]


def test_a_lease_that_cannot_be_extended_for_a_moment_is_not_given_up() -> None:
    answers, is_over = list(REFUSALS), threading.Event()
    was_held: list[bool] = []

    def extend(_messages: Sequence[Leased], _lease_s: float) -> list[Refusal[Leased]]:
        was_held.append(keeper.is_held(FIRST))
        if len(answers) == 1:
            is_over.set()
        return list(answers.pop(0))

    keeper = LeaseKeeper(extend)
    keeper.hold([FIRST], lease_s=SHORT_S, owner=None)

    assert is_over.wait(30)
    keeper.close()
    assert was_held == [True, True, True]
    assert not keeper.is_held(FIRST)


def test_the_same_holds_for_leases_on_an_event_loop() -> None:
    answers = list(REFUSALS)

    async def scenario() -> None:
        is_over = asyncio.Event()

        async def extend(_messages: Sequence[Leased], _lease_s: float) -> list[Refusal[Leased]]:
            assert keeper.is_held(FIRST)
            if len(answers) == 1:
                is_over.set()
            return list(answers.pop(0))

        keeper = AsyncLeaseKeeper(extend)
        keeper.hold([FIRST], lease_s=SHORT_S, owner=None)
        async with asyncio.timeout(30):
            await is_over.wait()
        await asyncio.sleep(0)
        assert not keeper.is_held(FIRST)
        await keeper.close()

    asyncio.run(scenario())


def test_a_message_that_is_settled_while_its_lease_is_extended_is_not_told_as_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_over = threading.Event()

    def extend(messages: Sequence[Leased], _lease_s: float) -> list[Refusal[Leased]]:
        if SECOND in messages:
            is_over.set()
            return []
        # The ack arrives before the extension does.
        keeper.drop([FIRST])
        keeper.hold([SECOND], lease_s=SHORT_S, owner=None)
        return [Refusal(FIRST, LeaseExpired("acked"))]

    keeper = LeaseKeeper(extend)
    keeper.hold([FIRST], lease_s=SHORT_S, owner=None)

    assert is_over.wait(30)
    keeper.close()
    assert caplog.messages == []


def test_the_same_is_true_on_an_event_loop(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        is_over = asyncio.Event()

        async def extend(messages: Sequence[Leased], _lease_s: float) -> list[Refusal[Leased]]:
            if SECOND in messages:
                is_over.set()
                return []
            keeper.drop([FIRST])
            keeper.hold([SECOND], lease_s=SHORT_S, owner=None)
            return [Refusal(FIRST, LeaseExpired("acked"))]

        keeper = AsyncLeaseKeeper(extend)
        keeper.hold([FIRST], lease_s=SHORT_S, owner=None)
        async with asyncio.timeout(30):
            await is_over.wait()
        await keeper.close()

    asyncio.run(scenario())
    assert caplog.messages == []


def test_the_thread_that_extends_leases_ends_when_nothing_is_held_and_begins_again() -> None:
    begun: list[threading.Thread] = []
    is_extended = threading.Event()

    def extend(_messages: Sequence[Leased], _lease_s: float) -> list[Refusal[Leased]]:
        begun.append(threading.current_thread())
        is_extended.set()
        return []

    keeper = LeaseKeeper(extend, idle_s=0.001)
    for _ in range(2):
        is_extended.clear()
        keeper.hold([FIRST], lease_s=SHORT_S, owner=None)
        assert is_extended.wait(30)
        keeper.drop([FIRST])
        begun[-1].join(30)
        assert not begun[-1].is_alive()

    keeper.close()
    assert begun[0] is not begun[-1]

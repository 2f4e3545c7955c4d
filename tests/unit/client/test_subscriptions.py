"""What a loop over messages hands out, and what it does not."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.client.deliveries import Leased, Refusal
from penstock.client.subscriptions import (
    AsyncLeaseKeeper,
    AsyncSubscription,
    LeaseKeeper,
    Subscription,
)

LEASE_S = 3_600


@dataclass(frozen=True)
class Out:
    receipt: str
    topic: str = "orders"
    group: str = "billing"
    lease_until_ms: int = 0


FIRST, LOST, AGAIN = Out("1"), Out("2"), Out("3")


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

"""The life of a message as a tree for people."""

from typing import Any

from penstock.cli.lives import tree_of
from penstock.client import TraceStep

NOON_MS = 1_738_324_800_000


def step(kind: str, at_ms: int, **details: Any) -> TraceStep:
    return TraceStep(kind=kind, at=at_ms, **details)


def lines_of(*steps: TraceStep) -> list[str]:
    return list(tree_of("orders/0-0", steps).lines())


def test_answers_hang_on_their_delivery_and_deliveries_on_their_group() -> None:
    lines = lines_of(
        step("PUBLISHED", NOON_MS, detail="offset 0, leader epoch 1"),
        step("REPLICATED", NOON_MS, node=1, detail="on nodes 1, 2"),
        step("DELIVERED", NOON_MS + 5, group="billing", consumer="anna", attempt=1),
        step("DELIVERED", NOON_MS + 50, group="audit", attempt=1),
        step("NACKED", NOON_MS + 1_005, group="billing", attempt=1, detail="not yet"),
        step("REDELIVERED", NOON_MS + 61_005, group="billing", consumer="ben", attempt=2),
        step("REJECTED", NOON_MS + 61_305, group="billing", attempt=2, detail="never"),
        step("DEAD_LETTERED", NOON_MS + 61_310, group="billing", detail="copied to o.dlq"),
    )

    assert lines == [
        "orders/0-0",
        "├─ 2025-01-31T12:00:00.000Z  PUBLISHED: offset 0, leader epoch 1",
        "├─ +0ms  REPLICATED: on nodes 1, 2",
        "├─ group billing",
        "│  ├─ +5ms  DELIVERED to anna, attempt 1",
        "│  │  └─ +1.005s (1.000s later)  NACKED: not yet",
        "│  ├─ +1m 1s (1m later)  REDELIVERED to ben, attempt 2",
        "│  │  └─ +1m 1s (300ms later)  REJECTED: never",
        "│  └─ +1m 1s (5ms later)  DEAD_LETTERED: copied to o.dlq",
        "└─ group audit",
        "   └─ +50ms  DELIVERED to a consumer without a name, attempt 1",
    ]


def test_times_in_details_are_readable_and_texts_of_people_stay() -> None:
    later_ms = NOON_MS + 30_000
    text = f"try again until {later_ms}"
    lines = lines_of(
        step("SCHEDULED", NOON_MS, detail=f"due at {later_ms}"),
        step("SCHEDULED", NOON_MS, detail=f"moved, due at {later_ms}"),
        step("NACKED", NOON_MS, group="g", detail=f"ready at {later_ms}; {text}"),
        step("REJECTED", NOON_MS, group="g", detail="until 17 it works"),
        step("RETAINED", NOON_MS + 7 * 86_400_000, detail="kept at least until then"),
    )

    assert lines[1].endswith("SCHEDULED: due at 2025-01-31T12:00:30.000Z")
    assert lines[2].endswith("SCHEDULED: moved, due at 2025-01-31T12:00:30.000Z")
    assert lines[4].endswith(f"NACKED: ready at 2025-01-31T12:00:30.000Z; {text}")
    assert lines[5].endswith("REJECTED: until 17 it works")
    assert lines[6] == "└─ +7d  RETAINED: kept at least until then (2025-02-07T12:00:00.000Z)"


def test_a_message_of_the_future_is_delivered_before_its_timestamp() -> None:
    lines = lines_of(
        step("PUBLISHED", NOON_MS),
        step("DELIVERED", NOON_MS - 90_000, group="g", attempt=1),
    )

    assert lines[3].startswith("   └─ -1m 30s  DELIVERED")

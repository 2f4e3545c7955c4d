"""Messages that may go anywhere, shared among partitions."""

from collections import Counter

from penstock.broker.spread import RUN_MAX, Spread


def is_led(topic: str, partition: int) -> bool:
    return True


def test_partitions_take_turns() -> None:
    spread = Spread(is_led)

    taken = [spread.take("orders", among=3, run=1) for _ in range(7)]

    assert taken == [0, 1, 2, 0, 1, 2, 0]


def test_runs_of_any_size_come_out_even() -> None:
    spread = Spread(is_led)
    given: Counter[int] = Counter()

    for number in range(600):
        run = 100 if number % 2 else 1
        given[spread.take("orders", among=6, run=run)] += run

    assert max(given.values()) - min(given.values()) <= 100


def test_each_topic_has_turns_of_its_own() -> None:
    spread = Spread(is_led)

    taken = [spread.take(topic, among=2, run=1) for _ in range(2) for topic in ("a", "b")]

    assert taken == [0, 0, 1, 1]


def test_messages_that_come_together_share_partitions_by_the_run() -> None:
    spread = Spread(is_led)

    chosen = list(spread.partitions("orders", among=2, count=2 * RUN_MAX + 1))

    assert chosen == [0] * RUN_MAX + [1] * RUN_MAX + [0]


def test_a_topic_that_grows_starts_even() -> None:
    spread = Spread(is_led)
    for _ in range(100):
        spread.take("orders", among=2, run=1)

    taken = [spread.take("orders", among=3, run=1) for _ in range(6)]

    assert sorted(taken) == [0, 0, 1, 1, 2, 2]


def test_a_spread_that_forgets_topics_goes_on() -> None:
    spread = Spread(is_led)

    taken = [spread.take(f"topic {number}", among=2, run=1) for number in range(10_001)]

    assert set(taken) == {0}
    assert spread.take("topic 10000", among=2, run=1) == 1


def test_partitions_that_nobody_leads_are_passed_over_and_not_flooded_afterwards() -> None:
    away = {1}
    spread = Spread(lambda _, partition: partition not in away)

    without = [spread.take("orders", among=3, run=1) for _ in range(100)]
    away.clear()
    again = [spread.take("orders", among=3, run=1) for _ in range(6)]
    away.update(range(3))

    assert set(without) == {0, 2}
    assert without.count(0) == without.count(2)
    assert sorted(again) == [0, 0, 1, 1, 2, 2]
    assert spread.take("orders", among=3, run=1) in away

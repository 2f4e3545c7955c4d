"""What is refused when it is given, although replicas would keep it."""

import pytest

from penstock.broker import NewTopic
from penstock.broker.given_settings import check_given_settings
from penstock.errors import InvalidSetting
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import run


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("retention.ms", "1_000", "retention.ms=1_000 is not written in digits alone"),
        ("delivery.attempts.max", "٣", "is not written in digits alone"),
        ("min.cleanable.dirty.ratio", "0.2_5", "is not written in digits alone"),
        ("delivery.dead.letter.topic", "orders", "is the topic itself"),
        ("delivery.dead.letter.topic", "..", "is not the name of a topic"),
    ],
)
def test_what_nobody_can_mean_is_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        check_given_settings("orders", {name: value})


def test_what_can_be_meant_is_accepted() -> None:
    settings = {"retention.ms": "-1", "delivery.dead.letter.topic": "buried_orders"}

    check_given_settings("orders", settings)


def test_topics_and_groups_are_not_set_to_it() -> None:
    async def scene() -> None:
        broker = await started()
        itself = {"delivery.dead.letter.topic": "orders"}

        with pytest.raises(InvalidSetting, match="itself"):
            await broker.topics.change_settings("orders", itself, [])
        with pytest.raises(InvalidSetting, match="itself"):
            await broker.queues.configure_group("orders", "workers", itself)
        new = NewTopic("new", settings={"delivery.dead.letter.topic": "new"})
        with pytest.raises(InvalidSetting, match="itself"):
            await broker.topics.create(new)

    run(scene())

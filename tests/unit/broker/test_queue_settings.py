"""What may stand in the settings in which a topic keeps what it is as a queue."""

import json

import pytest

from penstock.broker.queue_settings import check_queue_settings
from penstock.errors import InvalidSetting
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import run

ARN = "arn:aws:sqs:us-east-1:000000000000:any"
TASK = {"started_ms": 1, "to_move": 2, "destination": "orders", "rate": 500}


def kept(**values: object) -> str:
    """The JSON of an object whose texts are JSON, unless they are texts."""
    return json.dumps(
        {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in values.items()
        }
    )


def test_what_a_queue_keeps_is_accepted() -> None:
    policy = {"deadLetterTargetArn": ARN, "maxReceiveCount": "3"}
    check_queue_settings(
        {
            "sqs.attributes": kept(
                DelaySeconds="900",
                FifoQueue="true",
                DeduplicationScope="messageGroup",
                Policy="anything",
                RedrivePolicy=policy,
                RedriveAllowPolicy={"redrivePermission": "denyAll"},
                CreatedTimestamp="1700000000",
            ),
            "sqs.tags": kept(team="payments", empty=""),
            "sqs.move.tasks": kept(one=TASK, two={"started_ms": 1, "to_move": 0}),
            "sqs.move.progress": kept(one={"moved": 1, "status": "FAILED", "failure": "no queue"}),
            "retention.ms": "1",
        }
    )


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("sqs.attributes", kept(DelaySeconds="901"), "'901'.*DelaySeconds.*between 0 and 900"),
        ("sqs.attributes", kept(VisibilityTimeout="-1"), "'-1'.*between 0 and 43200"),
        ("sqs.attributes", kept(VisibilityTimeout="soon"), "'soon'.*VisibilityTimeout"),
        ("sqs.attributes", kept(VisibilityTimeout="9" * 5_000), "between 0 and 43200"),
        ("sqs.attributes", kept(VisibilityTimeout="٣"), "between 0 and 43200"),
        ("sqs.attributes", kept(FifoQueue="yes"), "true or false"),
        ("sqs.attributes", kept(DeduplicationScope="world"), "queue, messageGroup"),
        ("sqs.attributes", kept(RedrivePolicy="notjson"), "deadLetterTargetArn"),
        ("sqs.attributes", kept(RedriveAllowPolicy="notjson"), "RedriveAllowPolicy"),
        ("sqs.attributes", kept(CreatedTimestamp="then"), "'then'.*CreatedTimestamp"),
        ("sqs.attributes", kept(Colour="red"), "Colour is no attribute"),
        ("sqs.tags", kept(**{f"t{number}": "" for number in range(51)}), "51 tags.*50"),
        ("sqs.tags", json.dumps({"": "x"}), "0 characters, not 1 to 128"),
        ("sqs.tags", kept(team="x" * 257), "257 characters, at most 256"),
        ("sqs.move.tasks", kept(one="x"), "'x' of 'one' cannot be read"),
        ("sqs.move.tasks", kept(one={**TASK, "rate": 0}), "rate"),
        ("sqs.move.tasks", kept(one={**TASK, "to_move": -1}), "to_move"),
        ("sqs.move.tasks", kept(**{f"t{number}": TASK for number in range(11)}), "11 move tasks"),
        ("sqs.move.progress", kept(one={"status": "LOST"}), "LOST"),
    ],
)
def test_what_no_queue_can_be_is_refused_with_value_and_limit(
    name: str, value: str, reason: str
) -> None:
    with pytest.raises(InvalidSetting, match=f"(?s)^{name}: .*{reason}"):
        check_queue_settings({name: value})


def test_everything_that_is_wrong_is_named() -> None:
    settings = {"sqs.attributes": kept(DelaySeconds="x"), "sqs.tags": kept(team="x" * 257)}

    with pytest.raises(InvalidSetting, match=r"sqs\.attributes: .*; sqs\.tags: "):
        check_queue_settings(settings)


def test_they_are_checked_when_settings_of_a_topic_change() -> None:
    async def scene() -> None:
        broker = await started()
        broken = {"sqs.attributes": kept(DelaySeconds="x")}

        for dry_run in (True, False):
            with pytest.raises(InvalidSetting, match="DelaySeconds"):
                await broker.topics.change_settings("orders", broken, [], dry_run=dry_run)

        assert broker.metadata.topic("orders").settings == {}

    run(scene())


def test_a_group_has_none_of_them() -> None:
    async def scene() -> None:
        broker = await started()

        with pytest.raises(InvalidSetting, match=r"sqs\.tags is no setting of a queue group"):
            await broker.queues.configure_group("orders", "workers", {"sqs.tags": "{}"})

    run(scene())

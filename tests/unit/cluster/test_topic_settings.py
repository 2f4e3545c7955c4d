"""What a topic can be told."""

import pytest

from penstock.cluster import DEFINITIONS, check_settings
from penstock.config import NodeOptions
from penstock.errors import InvalidSetting


def test_every_default_may_be_given() -> None:
    options = NodeOptions()

    check_settings({each.name: each.default(options) for each in DEFINITIONS.values()})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "unclean.leader.election.enable",
            "true",
            "only a replica leads that a majority has elected",
        ),
        ("message.downconversion.enable", "true", "the format that they are stored in"),
        ("leader.replication.throttled.replicas", "*", "transfer_bytes_per_s bounds"),
        ("follower.replication.throttled.replicas", "0:1", "transfer_bytes_per_s bounds"),
        ("remote.storage.enable", "true", "no remote storage"),
        ("local.retention.ms", "1000", "retention.ms says what is kept"),
        ("local.retention.bytes", "-1", "retention.bytes says what is kept"),
        ("compression.type", "lz4", "stored as their producer compressed them"),
        ("compression.lz4.level", "18", "not between 1 and 17"),
    ],
)
def test_what_is_not_done_is_refused_with_the_reason(name: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason) as refusal:
        check_settings({name: value})

    assert f"{name}={value} is not" in str(refusal.value)


@pytest.mark.parametrize("value", ["false", "False", "FALSE"])
def test_what_is_never_done_may_be_declined_in_any_spelling(value: str) -> None:
    check_settings({"unclean.leader.election.enable": value})

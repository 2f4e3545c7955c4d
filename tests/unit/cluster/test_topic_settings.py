"""What a topic can be told."""

import re

import pytest

from penstock.cluster import DEFINITIONS, check_group_settings, check_settings
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
        ("compression.lz4.level", "high", "not a whole number between 1 and 17"),
        ("min.cleanable.dirty.ratio", "half", "not a number between 0 and 1"),
        ("delivery.dead.letter.topic", "a b", "up to 249 letters, digits"),
    ],
)
def test_what_is_not_done_is_refused_with_the_reason(name: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason) as refusal:
        check_settings({name: value})

    assert f"{name}={value} is not" in str(refusal.value)


def test_a_name_that_was_mistyped_is_refused_with_the_one_that_was_meant() -> None:
    meant = "retention.m is no setting of a topic; did you mean retention.ms?"
    with pytest.raises(InvalidSetting, match=re.escape(meant)):
        check_settings({"retention.m": "1"})
    with pytest.raises(InvalidSetting, match=r"is no setting of a topic$"):
        check_settings({"colour": "red"})


def test_a_queue_group_says_which_settings_it_has() -> None:
    with pytest.raises(InvalidSetting, match=r"queue group; there are .*delivery\.lease\.ms"):
        check_group_settings({"retention.ms": "1"})


@pytest.mark.parametrize("value", ["false", "False", "FALSE"])
def test_what_is_never_done_may_be_declined_in_any_spelling(value: str) -> None:
    check_settings({"unclean.leader.election.enable": value})

"""Lag from the progress of a query."""

from penstock.ids import TopicPartition
from penstock.spark import lag_of


def test_lag_is_what_was_there_and_not_read() -> None:
    source = {
        "latestOffset": '{"orders": {"0": 12, "1": 3}}',
        "endOffset": {"orders": {"0": 5, "1": 3}},
    }

    assert lag_of({"sources": [source]}) == {
        TopicPartition("orders", 0): 7,
        TopicPartition("orders", 1): 0,
    }


def test_other_sources_and_sources_that_have_not_begun_are_passed_over() -> None:
    files = {"latestOffset": None, "endOffset": {"logOffset": 0}}
    idle = {"latestOffset": None, "endOffset": None}
    rates = {"latestOffset": "7", "endOffset": "5"}

    assert lag_of({"sources": [files, idle, rates]}) == {}

"""Lag is followed back from what it is now."""

from penstock.spark.insight.lags import levels

TIMES_MS = [0, 1000, 2000, 3000]


def test_a_level_is_what_it_became_without_what_changed_after_it() -> None:
    changes = {0: 5, 1000: -2, 3000: 4}

    assert levels(TIMES_MS, changes, last=10) == [8.0, 6.0, 6.0, 10.0]


def test_what_happened_after_the_last_bucket_is_taken_back_first() -> None:
    changes = {3000: 1, 9000: 5, 12_000: -3}

    assert levels(TIMES_MS, changes, last=4) == [1.0, 1.0, 1.0, 2.0]


def test_a_level_is_never_below_nothing() -> None:
    assert levels(TIMES_MS, {2000: 7}, last=3) == [0.0, 0.0, 3.0, 3.0]

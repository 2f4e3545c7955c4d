"""Where the cluster is."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.client import Connection, GroupDescription, PartitionProgress
from penstock.errors import InvalidRequest, TimedOut, TopicExists


@pytest.mark.parametrize(
    ("bootstrap", "expected"),
    [
        ("here", [("here", 9092)]),
        ("here:1, there:2", [("here", 1), ("there", 2)]),
        ("[::1]:3", [("::1", 3)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses_are_read_with_or_without_a_port(
    bootstrap: str, expected: list[tuple[str, int]]
) -> None:
    assert list(Connection(bootstrap).addresses()) == expected


@pytest.mark.parametrize(
    "bootstrap", ["", ":1", "here:", "here:port", "here:0", "here:65536", "a,"]
)
def test_what_is_no_address_is_refused(bootstrap: str) -> None:
    with pytest.raises(InvalidRequest, match="not HOST or HOST:PORT"):
        list(Connection(bootstrap).addresses())


def test_a_call_that_takes_too_long_is_an_error_that_may_be_retried() -> None:
    with pytest.raises(TimedOut, match=r"list topics: here:1 gave no answer within 0\.01 s"):
        Connection("here:1", wait_s=0.01).wait(Future(), "list topics")


def test_the_error_of_a_call_is_translated() -> None:
    future: Future[None] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, "exists")))

    with pytest.raises(TopicExists, match="create topic x: exists"):
        Connection().wait(future, "create topic x")


@pytest.mark.parametrize(
    ("committed", "end", "lag"), [(3, 10, 7), (10, 10, 0), (12, 10, 0), (None, 10, None)]
)
def test_lag_is_what_lies_between_the_offset_and_the_end(
    committed: int | None, end: int, lag: int | None
) -> None:
    progress = PartitionProgress(
        topic="t", partition=0, committed=committed, end=end, member_id=None
    )

    assert progress.lag == lag


@pytest.mark.parametrize(
    ("ages_s", "expected"), [((1.5, None, 0.0), 1.5), ((None,), None), ((), None), ((0.0,), 0.0)]
)
def test_a_group_lags_by_the_oldest_that_is_known(
    ages_s: tuple[float | None, ...], expected: float | None
) -> None:
    group = GroupDescription(
        name="g",
        state="stable",
        protocol="consumer",
        assignor="uniform",
        coordinator=1,
        members=(),
        progress=tuple(
            PartitionProgress(
                topic="t", partition=each, committed=1, end=2, member_id=None, lag_s=age_s
            )
            for each, age_s in enumerate(ages_s)
        ),
    )

    assert group.lag_s == expected

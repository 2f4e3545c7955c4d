"""Options are read into values, or refused with the values in the message."""

from pathlib import Path

import pytest

from penstock.errors import InvalidRequest
from penstock.ids import TopicPartition
from penstock.spark.options import Bound, Limits, SourceOptions, parse_options, parse_time_ms


def parse(**options: str) -> SourceOptions:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return parse_options({"kafka.bootstrap.servers": "one:1,two", "subscribe": "a", **named})


def test_names_are_read_without_regard_to_case() -> None:
    assert parse(MAXOFFSETSPERTRIGGER="5").limits == Limits(offsets_max=5)


@pytest.mark.parametrize("path", ["/attic", "file:/attic", "s3://bucket/attic"])
def test_a_path_begins_where_the_driver_is_unless_it_is_complete(path: str) -> None:
    assert parse(archivePath="attic").archive_path == str(Path.cwd() / "attic")
    assert parse(archivePath=path).archive_path == path


def test_a_time_goes_before_times_of_partitions_and_these_before_offsets() -> None:
    place = TopicPartition("a", 0)
    offsets = {"startingOffsets": '{"a": {"0": 7}}'}
    by_partition = offsets | {"startingOffsetsByTimestamp": '{"a": {"0": 1000}}'}
    by_time = by_partition | {"startingTimestamp": "2000"}

    assert parse(**offsets).start == Bound(offsets={place: 7})
    assert parse(**by_partition).start == Bound(times_ms={place: 1000})
    assert parse(**by_time).start == Bound(time_ms=2000)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1700000000123", 1700000000123),
        ("2023-11-14T22:13:20Z", 1700000000000),
        ("2023-11-14T22:13:20.5", 1700000000500),
        ("2023-11-15T00:13:20+02:00", 1700000000000),
    ],
)
def test_times_are_milliseconds_or_iso(text: str, time_ms: int) -> None:
    assert parse_time_ms(text) == time_ms


def test_headers_are_a_column_when_asked_for() -> None:
    assert "headers" not in parse().columns
    assert parse(includeHeaders="true").columns[-1] == "headers"
    assert parse(columns="value,offset", includeHeaders="true").columns == (
        "value",
        "offset",
        "headers",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": "1"}, "unknown option speed; the source knows kafka.bootstrap.servers, subs"),
        ({"assign": '{"a": [0]}'}, "exactly one of .* subscribe and assign was given"),
        ({"subscribe": ""}, "exactly one of .* none was given"),
        ({"kafka_bootstrap_servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"kafka_bootstrap_servers": "a:b"}, "kafka.bootstrap.servers has 'a:b'"),
        ({"subscribe": " , "}, "subscribe is ' , ', which cannot be read: it names no topic"),
        ({"startingOffsets": "begin"}, "is 'begin', which .*: it is not earliest, latest or JSON"),
        ({"startingOffsets": "[]"}, "startingOffsets is '\\[\\]', .* not earliest, latest or JSON"),
        ({"startingOffsets": "{"}, "startingOffsets is '{', .*: it is not JSON such as"),
        ({"startingTimestamp": str(2**63)}, "startingTimestamp is .*: it is not within"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest': nothing lies before"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets is .*: nothing lies before"),
        ({"subscribe": "", "assign": "a"}, "assign is 'a', .*: it is not JSON such as"),
        ({"subscribe": "", "assign": '{"a": "01"}'}, "assign is .*: partitions are lists"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "-3 is not an offset"),
        ({"endingOffsets": '{"a": [1]}'}, "endingOffsets is .*: partitions have values"),
        ({"startingTimestamp": "noon"}, "startingTimestamp is 'noon', which cannot be read"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0', not a number from 1 on"),
        ({"minPartitions": "x"}, "minPartitions is 'x'"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no', not true or false"),
        ({"columns": "key,size"}, "columns is 'key,size'; each of key, value"),
        ({"columns": "key,key"}, "may be named once"),
        ({"maxTriggerDelay": "5"}, "maxTriggerDelay is '5', not a duration"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is 9, more than max"),
        ({"kafka_isolation_level": "none"}, "kafka.isolation.level is 'none'"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "Strategy is 'x', not error or latest"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse(**options)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="subscribePattern is 'a\\[', which cannot be read"):
        parse_options({"kafka.bootstrap.servers": "one", "subscribePattern": "a["})

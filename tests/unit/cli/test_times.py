"""Times as people type and read them."""

from datetime import UTC, datetime, timedelta

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.times import parse_time_ms, read_duration_s, show_duration, show_time

NOW_MS = 1_700_000_000_000
MOMENTS = st.datetimes(
    min_value=datetime(1980, 1, 1),  # noqa: DTZ001 (the strategy wants bounds without a zone)
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW_MS),
        ("1700000000123", 1_700_000_000_123),
        ("-1h", NOW_MS - 3_600_000),
        ("+30s", NOW_MS + 30_000),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
        ("2023-11-14 22:13:20.500+00:00", NOW_MS + 500),
    ],
)
def test_every_way_to_write_a_time_is_understood(text: str, expected: int) -> None:
    assert parse_time_ms(text, now_ms=NOW_MS) == expected


def test_a_time_without_a_zone_is_local_time() -> None:
    local = datetime(2024, 7, 1, 12, 0).astimezone()

    assert parse_time_ms("2024-07-01T12:00", now_ms=NOW_MS) == local.timestamp() * 1000


@pytest.mark.parametrize("text", ["", "yesterday", "-1x", "2024-13-01", "12:00", "1e9", "--1h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_time_ms(text, now_ms=NOW_MS)


@given(MOMENTS)
def test_a_shown_time_is_read_back_as_itself(moment: datetime) -> None:
    timestamp_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

    shown = show_time(timestamp_ms)

    assert shown is not None
    assert parse_time_ms(shown, now_ms=NOW_MS) == timestamp_ms


def test_a_missing_time_is_shown_as_missing() -> None:
    assert show_time(None) is None


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1.000s"),
        (59_999, "59.999s"),
        (60_000, "1m"),
        (125_900, "2m 5s"),
        (3_600_000, "1h"),
        (90_060_000, "1d 1h"),
        (-125_900, "-2m 5s"),
    ],
)
def test_a_duration_is_shown_by_its_two_largest_units(duration_ms: int, text: str) -> None:
    assert show_duration(duration_ms) == text


def test_a_time_after_the_year_9999_stays_a_number() -> None:
    assert show_time(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert show_time(253_402_300_800_000) == "253402300800000"


@pytest.mark.parametrize(("text", "duration_s"), [("0", 0), ("250ms", 0.25), (" 10s ", 10)])
def test_a_duration_has_a_unit_unless_it_is_none(text: str, duration_s: float) -> None:
    assert read_duration_s(text, option="--lease") == duration_s


@pytest.mark.parametrize("text", ["10", " 1 ", "05"])
def test_a_number_alone_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"{text.strip()}s or {text.strip()}ms"):
        read_duration_s(text, option="--lease")

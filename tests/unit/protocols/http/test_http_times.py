import pytest

from penstock.errors import InvalidRequest
from penstock.protocols.http.times import read_duration_ms, read_moment_ms

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("written", "meant_ms"),
    [("500ms", 500), ("1.5s", 1_500), ("5m", 300_000), ("1h", HOUR_MS), (2, 2_000), (0.25, 250)],
)
def test_durations_are_seconds_or_have_a_unit(written: str | float, meant_ms: int) -> None:
    assert read_duration_ms("delay", written, max_ms=HOUR_MS) == meant_ms


@pytest.mark.parametrize("written", ["", "5", "five", "5y", "-1s", "1s2s", "99h", -1, 1e300])
def test_other_durations_are_refused_by_name_and_value(written: str | float) -> None:
    with pytest.raises(InvalidRequest, match="delay is"):
        read_duration_ms("delay", written, max_ms=HOUR_MS)


@pytest.mark.parametrize(
    ("written", "meant_ms"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:01+01:00", 1_000),
        ("1970-01-01T00:00:01", 1_000),
        (1_000, 1_000),
        ("1000", 1_000),
    ],
)
def test_moments_are_milliseconds_or_iso_8601(written: str | float, meant_ms: int) -> None:
    assert read_moment_ms("deliver_at", written) == meant_ms


@pytest.mark.parametrize("written", ["", "tomorrow", "2024-13-01", -1, 1e300])
def test_other_moments_are_refused_by_name_and_value(written: str | float) -> None:
    with pytest.raises(InvalidRequest, match="deliver_at is"):
        read_moment_ms("deliver_at", written)

"""How long whoever copies has to wait."""

from penstock.cluster.pace import Pace
from penstock.testing import SimClock


def test_copies_of_all_logs_share_one_speed() -> None:
    clock = SimClock()
    pace = Pace(1_000, clock.steady_s)

    assert round(pace.take(500), 3) == 0.5
    assert round(pace.take(1_000), 3) == 1.5


def test_a_time_of_silence_is_no_credit_beyond_a_short_burst() -> None:
    clock = SimClock()
    pace = Pace(1_000, clock.steady_s)
    clock.advance(60_000)

    assert pace.take(100) == 0.0
    assert round(pace.take(2_000), 3) == 2.0

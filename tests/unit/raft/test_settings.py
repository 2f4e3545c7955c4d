"""Limits of the settings."""

import pytest

from penstock.errors import InvalidConfiguration
from penstock.raft import RaftSettings


@pytest.mark.parametrize("name", ["election_ticks", "append_bytes_max", "inflight_messages_max"])
def test_a_limit_below_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidConfiguration, match=name):
        RaftSettings(**{name: 0})


def test_heartbeats_come_more_often_than_elections() -> None:
    with pytest.raises(InvalidConfiguration, match="heartbeat_ticks"):
        RaftSettings(election_ticks=5, heartbeat_ticks=5)

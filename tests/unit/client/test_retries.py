"""Which node is asked next, and when a call is given up."""

import pytest

from penstock.client.calls import Call
from penstock.client.retries import PAUSE_MAX_S, PAUSE_MIN_S, Attempts, Route, Unreached
from penstock.errors import InvalidRequest, PenstockError, TimedOut, TopicNotFound, Unavailable

THREE = "http://a:1,http://b:2,http://c:3"
SAFE = Call(method="GET", path="/", read=bytes)
UNSAFE = Call(method="POST", path="/", read=bytes, is_repeatable=False)


def begin(route: Route, call: Call[bytes] = SAFE) -> Attempts:
    return Attempts(route, call, 0.0, chance=lambda: 1.0)


def test_other_nodes_are_asked_at_once_and_the_round_is_followed_by_a_pause() -> None:
    attempts = begin(Route(THREE, retry_s=15))

    asked = []
    pauses = []
    for _ in range(6):
        asked.append(attempts.target.host)
        pauses.append(attempts.failed(Unavailable("no"), 0.0))

    assert asked == ["a", "b", "c", "a", "b", "c"]
    assert pauses == [0, 0, PAUSE_MIN_S * 2, 0, 0, PAUSE_MIN_S * 4]


def test_pauses_grow_up_to_a_limit() -> None:
    attempts = begin(Route("http://a:1", retry_s=1_000))

    pauses = [attempts.failed(Unavailable("no"), 0.0) for _ in range(50)]

    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_MAX_S


def test_later_calls_begin_with_the_node_that_has_not_failed() -> None:
    route = Route(THREE, retry_s=15)
    begin(route).failed(Unavailable("no"), 0.0)

    assert begin(route).target.host == "b"


@pytest.mark.parametrize("error", [Unavailable("no"), TimedOut("late")])
def test_a_call_that_may_have_been_carried_out_is_not_repeated(error: PenstockError) -> None:
    with pytest.raises(type(error)):
        begin(Route(THREE, retry_s=15), UNSAFE).failed(error, 0.0)


def test_a_call_that_was_never_sent_is_repeated_elsewhere() -> None:
    attempts = begin(Route(THREE, retry_s=15), UNSAFE)

    assert attempts.failed(Unreached("refused"), 0.0) == 0
    assert attempts.target.host == "b"


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    with pytest.raises(TopicNotFound):
        begin(Route(THREE, retry_s=15)).failed(TopicNotFound("orders"), 0.0)


def test_a_call_is_given_up_when_its_time_is_over() -> None:
    attempts = begin(Route("http://a:1", retry_s=15))

    assert attempts.failed(Unavailable("no"), 14.0) > 0
    with pytest.raises(Unavailable, match="still no"):
        attempts.failed(Unavailable("still no"), 15.0)


def test_a_route_needs_an_address() -> None:
    with pytest.raises(InvalidRequest, match="at least one"):
        Route([], retry_s=15)

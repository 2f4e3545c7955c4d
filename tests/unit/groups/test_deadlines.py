"""When something must happen unless it is put off."""

from penstock.groups.deadlines import Deadlines, Matter, Timer

SESSION = Timer(Matter.SESSION, "m1")
JOIN = Timer(Matter.JOIN)


def due(deadlines: Deadlines, now_ms: int) -> list[tuple[str, Timer]]:
    popped = []
    while timer := deadlines.pop_due(now_ms):
        popped.append(timer)
    return popped


def test_a_timer_fires_once_at_its_time() -> None:
    deadlines = Deadlines()
    deadlines.set("g", SESSION, 100)

    assert due(deadlines, 99) == []
    assert due(deadlines, 100) == [("g", SESSION)]
    assert due(deadlines, 101) == []
    assert deadlines.next_ms() is None


def test_a_timer_that_is_put_off_fires_at_the_later_time_only() -> None:
    deadlines = Deadlines()
    deadlines.set("g", SESSION, 100)
    deadlines.set("g", SESSION, 200)

    assert due(deadlines, 199) == []
    assert deadlines.next_ms() == 200
    assert due(deadlines, 200) == [("g", SESSION)]


def test_a_timer_that_is_brought_forward_fires_at_the_earlier_time_only() -> None:
    deadlines = Deadlines()
    deadlines.set("g", SESSION, 200)
    deadlines.set("g", SESSION, 100)

    assert due(deadlines, 100) == [("g", SESSION)]
    assert due(deadlines, 300) == []


def test_cancelled_timers_do_not_fire() -> None:
    deadlines = Deadlines()
    deadlines.set("g", SESSION, 100)
    deadlines.set("h", SESSION, 100)
    deadlines.set("h", JOIN, 100)

    deadlines.cancel("g", SESSION)
    deadlines.cancel_group("h")

    assert due(deadlines, 1_000) == []


def test_timers_fire_in_the_order_of_their_time() -> None:
    deadlines = Deadlines()
    deadlines.set("g", SESSION, 300)
    deadlines.set("g", JOIN, 100)
    deadlines.set("f", JOIN, 200)

    assert due(deadlines, 300) == [("g", JOIN), ("f", JOIN), ("g", SESSION)]

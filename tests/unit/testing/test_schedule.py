import asyncio
import inspect
from contextlib import suppress

import pytest

from penstock.testing import MachineStopped, Schedule, SimExecutor, SimLoop, SimMachine
from penstock.testing.machine import ANY_LIFE

FOREVER_US = 1 << 40


def run(schedule: Schedule, until_us: int = FOREVER_US) -> None:
    schedule.run(until_us=until_us, events_max=1000)


def running(schedule: Schedule, rate: float = 1.0) -> tuple[SimMachine, SimLoop]:
    machine = SimMachine(1)
    loop = SimLoop(schedule, machine, delay_us=lambda: 7, rate=rate)
    machine.start(loop)
    return machine, loop


def test_events_happen_in_order_of_time_and_then_of_asking() -> None:
    schedule = Schedule()
    seen: list[tuple[str, int]] = []
    for name, delay_us in (("late", 20), ("soon", 10), ("then", 10)):
        schedule.later(delay_us, lambda name=name: seen.append((name, schedule.now_us)))

    run(schedule)

    assert seen == [("soon", 10), ("then", 10), ("late", 20)]
    assert schedule.events == 3


def test_time_reaches_the_end_that_was_asked_for() -> None:
    schedule = Schedule()
    schedule.later(20, lambda: None)

    run(schedule, until_us=15)
    assert (schedule.now_us, schedule.events) == (15, 0)
    run(schedule, until_us=30)
    assert (schedule.now_us, schedule.events) == (30, 1)


def test_what_belongs_to_an_ended_life_does_not_happen() -> None:
    schedule = Schedule()
    machine, loop = running(schedule)
    seen: list[str] = []
    schedule.later_on(machine, machine.life, 10, seen.append, "old life")
    schedule.later_on(machine, ANY_LIFE, 10, seen.append, "message")

    machine.stop()
    machine.start(loop)
    run(schedule)

    assert seen == ["message"]


def test_a_message_for_a_machine_that_is_off_is_lost() -> None:
    schedule = Schedule()
    machine, _ = running(schedule)
    seen: list[str] = []
    schedule.later_on(machine, ANY_LIFE, 10, seen.append, "message")

    machine.stop()
    run(schedule)

    assert seen == []


def test_a_paused_machine_does_everything_when_it_wakes_in_the_same_order() -> None:
    schedule = Schedule()
    machine, _ = running(schedule)
    seen: list[tuple[int, int]] = []
    for number in (1, 2):
        schedule.later_on(
            machine, 0, 10 * number, lambda number=number: seen.append((number, schedule.now_us))
        )
    machine.wakes_us = 100

    run(schedule)

    assert seen == [(1, 100), (2, 100)]


def test_a_machine_that_its_disk_stops_is_told_so() -> None:
    schedule = Schedule()
    machine, _ = running(schedule)
    machine.halted = machine.stop

    def stop() -> None:
        raise MachineStopped("off")

    schedule.later_on(machine, 0, 10, stop)
    run(schedule)

    assert not machine.is_on


@pytest.mark.parametrize("failure", [MachineStopped("off"), ValueError("a finding")])
def test_a_task_that_an_event_cut_short_has_asked_for_is_never_begun(failure: Exception) -> None:
    schedule = Schedule()
    machine, loop = running(schedule)
    machine.halted = machine.stop
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        raise AssertionError("its life is over")

    def begin_and_fail() -> None:
        tasks.append(loop.create_task(work()))
        raise failure

    schedule.later_on(machine, 0, 10, begin_and_fail)
    with suppress(ValueError):
        run(schedule)

    # Python would warn of a coroutine that is dropped before it has begun.
    assert [inspect.getcoroutinestate(task.get_coro()) for task in tasks] == [inspect.CORO_CLOSED]


def test_the_same_events_give_the_same_trace_and_others_another() -> None:
    traces = []
    for delay_us in (10, 10, 11):
        schedule = Schedule()
        schedule.later(delay_us, lambda: None)
        run(schedule)
        traces.append(schedule.trace)

    assert traces[0] == traces[1] != traces[2]


def test_tasks_timers_and_threads_run_in_simulated_time() -> None:
    schedule = Schedule()
    machine, loop = running(schedule)
    executor = SimExecutor(schedule, machine, lambda: 50)

    async def work() -> tuple[int, str]:
        await asyncio.sleep(0.001)
        slept_us = schedule.now_us
        return slept_us, await loop.run_in_executor(executor, lambda: "done")

    started: list[asyncio.Task[tuple[int, str]]] = []
    schedule.later_on(machine, 0, 0, lambda: started.append(loop.create_task(work())))
    run(schedule)

    assert started[0].result() == (1000, "done")
    assert schedule.now_us >= 1000 + 50 + 7


def test_a_fast_clock_makes_timers_short() -> None:
    schedule = Schedule()
    machine, loop = running(schedule, rate=2.0)
    seen: list[int] = []
    schedule.later_on(
        machine, 0, 0, lambda: loop.call_later(0.001, lambda: seen.append(schedule.now_us))
    )
    run(schedule)

    assert seen == [500]


def test_a_cancelled_timer_stays_silent() -> None:
    schedule = Schedule()
    machine, loop = running(schedule)
    schedule.later_on(machine, 0, 0, lambda: loop.call_later(0.001, pytest.fail).cancel())

    run(schedule)

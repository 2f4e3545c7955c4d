"""Whole nodes in simulated time: random histories and scripts.

`make simulate` plays more histories. A failing seed is played again by
`python -m tests.simulation --fleet --seed <seed>`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.simulation.__main__ import prepare
from tests.simulation.fleet import queue_scripts, scripts
from tests.simulation.fleet.fleet import play
from tests.simulation.replays import broken, traces
from tests.simulation.world import Outcome

SEEDS = 40
WORKERS = 2
EVENTS = 30_000


@pytest.fixture(scope="module")
def outcomes() -> Iterator[list[Outcome]]:
    with ProcessPoolExecutor(WORKERS, initializer=prepare) as pool:
        yield list(pool.map(partial(play, events=EVENTS), range(SEEDS)))


def test_no_random_history_breaks_a_promise(outcomes: list[Outcome]) -> None:
    assert broken(outcomes, "--fleet", f"--events {EVENTS}") == {}


def test_random_histories_have_every_kind_of_fault_and_deed(outcomes: list[Outcome]) -> None:
    faults: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())

    assert {
        "ack",
        "add_node",
        "balance",
        "broken link",
        "cancellation",
        "clock jump",
        "commit of an offset",
        "drain",
        "everyone stops",
        "failed sync",
        "flipped bit",
        "full disk",
        "heartbeat",
        "isolation",
        "kill",
        "learner was held",
        "move",
        "one-way cut",
        "pause",
        "power cut",
        "remove_node",
        "slow disk",
        "slow network",
        "snapshot was copied",
        "split",
        "stop between disk operations",
        "stop in good order",
        "transfer",
        "wiped disk",
    } <= faults.keys()


def test_random_histories_acknowledge(outcomes: list[Outcome]) -> None:
    assert sum(outcome.acked for outcome in outcomes) > 300 * len(outcomes)
    assert sum(outcome.reads for outcome in outcomes) > 200 * len(outcomes)


@pytest.mark.parametrize("script", [*scripts.SCRIPTS, *queue_scripts.SCRIPTS])
def test_a_script_ends_well(script: Callable[[], None]) -> None:
    script()


@pytest.mark.parametrize("seed", [5, 12, 14])
def test_a_seed_gives_the_same_history_in_every_process(seed: int) -> None:
    assert len(traces("--fleet", "--seed", str(seed), "--events", "12000")) == 1

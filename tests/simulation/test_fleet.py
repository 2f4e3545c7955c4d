"""Whole nodes in simulated time: random histories, scripts, and bugs that both must notice.

`make simulate` plays more histories. A failing seed is played again by
`python -m tests.simulation --fleet --seed <seed>`.
"""

import gc
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.architecture.sources import ROOT
from tests.simulation import planted_fleet
from tests.simulation.__main__ import prepare
from tests.simulation.fleet import scripts
from tests.simulation.fleet.fleet import play
from tests.simulation.planted import BUGS, planted
from tests.simulation.referee import Violation
from tests.simulation.world import Outcome

SEEDS = 24
WORKERS = 2
EVENTS = 40_000
BY_SCRIPT = {
    "a_node_that_starts_looks_for_those_alone_whom_it_was_told_of": (
        scripts.all_nodes_restart_after_the_first_have_left
    ),
    "first_members_are_not_named_by_the_log": (
        scripts.first_member_is_down_until_its_partition_has_been_moved
    ),
    "founders_are_forgotten_when_a_change_is_asked_for": (
        scripts.all_first_members_are_down_until_their_partition_has_been_moved
    ),
    "only_the_node_with_the_smaller_number_dials": (
        scripts.node_that_lost_its_disk_does_not_know_who_leads
    ),
}
BY_SEED = {
    "a_node_that_starts_goes_by_its_old_metadata": 3,
    "founders_may_begin_again_after_they_have_left": 43,
}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    thresholds = gc.get_threshold()
    prepare()
    yield
    gc.set_threshold(*thresholds)
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def outcomes() -> Iterator[list[Outcome]]:
    with ProcessPoolExecutor(WORKERS, initializer=prepare) as pool:
        yield list(pool.map(partial(play, events=EVENTS), range(SEEDS)))


def test_no_random_history_breaks_a_promise(outcomes: list[Outcome]) -> None:
    broken = {
        f"python -m tests.simulation --fleet --events {EVENTS} --seed {outcome.seed}": (
            outcome.violation
        )
        for outcome in outcomes
        if outcome.violation
    }

    assert broken == {}


def test_random_histories_have_every_kind_of_fault_and_deed(outcomes: list[Outcome]) -> None:
    faults: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())

    assert {
        "add_node",
        "balance",
        "broken link",
        "clock jump",
        "drain",
        "everyone stops",
        "failed sync",
        "flipped bit",
        "isolation",
        "kill",
        "move",
        "one-way cut",
        "pause",
        "power cut",
        "remove_node",
        "slow disk",
        "slow network",
        "stop between disk operations",
        "stop in good order",
        "transfer",
        "wiped disk",
    } <= faults.keys()


def test_random_histories_acknowledge(outcomes: list[Outcome]) -> None:
    assert sum(outcome.acked for outcome in outcomes) > 500 * len(outcomes)


@pytest.mark.parametrize("script", scripts.SCRIPTS)
def test_a_script_ends_well(script: Callable[[], None]) -> None:
    script()


def test_every_bug_planted_here_has_its_catcher() -> None:
    here = {name for name, make in BUGS.items() if make.__module__ == planted_fleet.__name__}

    assert here == {*BY_SCRIPT, *BY_SEED}


@pytest.mark.parametrize("name", BY_SCRIPT)
def test_a_script_notices_a_planted_bug(name: str) -> None:
    with planted(name), pytest.raises(Violation):
        BY_SCRIPT[name]()


@pytest.mark.parametrize("name", BY_SEED)
def test_a_random_history_notices_a_planted_bug(name: str) -> None:
    with planted(name):
        seeds = (BY_SEED[name], *range(40))
        assert any(play(seed, events=EVENTS).violation for seed in seeds)


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    traces = {_trace(hash_seed) for hash_seed in ("1", "2")}

    assert len(traces) == 1


def _trace(hash_seed: str) -> str:
    """Play one history in a process of its own, with its own order of sets of strings."""
    command = [sys.executable, "-m", "tests.simulation", "--fleet", "--seed", "5"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [*command, "--events", "12000"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout

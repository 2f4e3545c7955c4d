"""The short form: some random histories, and proof that a seed says all about one.

`make simulate` plays more of them. A failing seed is played again by
`python -m tests.simulation --seed <seed>`.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.__main__ import prepare
from tests.simulation.replays import broken, traces
from tests.simulation.world import Outcome, play

SEEDS = 36
WORKERS = 2
# Seeds that once broke an invariant. They take another course since; what was wrong is told in
# docs/internals/simulation.md, and tests beside the subjects keep it from coming back.
FORMER_FAILURES = (5, 132, 203, 210, 324, 20_004, 20_031)


@pytest.fixture(scope="module")
def outcomes() -> Iterator[list[Outcome]]:
    with ProcessPoolExecutor(WORKERS, initializer=prepare) as pool:
        yield list(pool.map(play, [*range(SEEDS), *FORMER_FAILURES]))


def test_no_random_history_breaks_an_invariant(outcomes: list[Outcome]) -> None:
    assert broken(outcomes) == {}


def test_random_histories_have_every_kind_of_fault(outcomes: list[Outcome]) -> None:
    faults: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())

    assert {
        "bad network",
        "broken link",
        "clock jump",
        "everyone stops",
        "failed sync",
        "flipped bit",
        "full disk",
        "isolation",
        "kill",
        "leadership transfer",
        "membership change",
        "messages lost",
        "messages repeated",
        "one-way cut",
        "pause",
        "power cut",
        "slow disk",
        "split",
        "stop between disk operations",
        "stop during recovery",
        "wiped disk",
    } <= faults.keys()


def test_random_histories_acknowledge_and_read(outcomes: list[Outcome]) -> None:
    assert sum(outcome.acked for outcome in outcomes) > 100 * len(outcomes)
    assert sum(outcome.reads for outcome in outcomes) > 50 * len(outcomes)
    assert sum(outcome.terms for outcome in outcomes) > 2 * len(outcomes)


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    assert len(traces("--seed", "8", "--events", "6000")) == 1

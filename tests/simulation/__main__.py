"""Play many histories and tell what they were like; or play one again.

    python -m tests.simulation --seconds 600       as many as fit into ten minutes
    python -m tests.simulation --seeds 200         two hundred of them
    python -m tests.simulation --seed 17           one, as it was
    python -m tests.simulation --seed 17 --verbose one, with a line for each fault

With `--workload messages` all histories are of one kind; otherwise the seed decides that, too.
With `--fleet` they are histories of whole nodes with many groups (`tests.simulation.fleet`).

The last line of the report is a JSON object. The exit code is 1 when an invariant did not hold.
"""

import argparse
import gc
import json
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation.fleet import fleet
from tests.simulation.workloads import Workload
from tests.simulation.world import EVENTS_DEFAULT, Outcome, World, play

_PROGRESS_S = 5.0


def main() -> int:
    """Run the command."""
    options = _options()
    prepare()
    if options.seed is not None:
        return _replay(options)
    started_s = time.monotonic()
    totals = Totals()
    deadline_s = started_s + options.seconds if options.seconds else float("inf")
    seeds = range(options.first, options.first + (options.seeds or sys.maxsize // 2))
    told_s = started_s
    with multiprocessing.Pool(options.workers, initializer=prepare) as pool:
        jobs = _jobs(seeds, options, deadline_s)
        for outcome in pool.imap_unordered(_play, jobs):
            if outcome is None:
                break
            totals.add(outcome)
            if outcome.violation:
                print(f"seed {outcome.seed}: {outcome.violation[:500]}")
                print(f"  replay: {_replay_command(outcome.seed, options)}", flush=True)
            if time.monotonic() - told_s > _PROGRESS_S:
                told_s = time.monotonic()
                print(totals.line(told_s - started_s), flush=True)
            if time.monotonic() > deadline_s:
                pool.terminate()
                break
    elapsed_s = time.monotonic() - started_s
    print(totals.line(elapsed_s))
    print(json.dumps(totals.report(elapsed_s, options.workers)))
    return 1 if totals.violations else 0


class Totals:
    """What all histories together amount to."""

    def __init__(self) -> None:
        self.histories = 0
        self.events = 0
        self.simulated_s = 0.0
        self.acked = 0
        self.reads = 0
        self.terms = 0
        self.faults: Counter[str] = Counter()
        self.violations: list[int] = []

    def add(self, outcome: Outcome) -> None:
        """Count one history."""
        self.histories += 1
        self.events += outcome.events
        self.simulated_s += outcome.simulated_s
        self.acked += outcome.acked
        self.reads += outcome.reads
        self.terms += outcome.terms
        self.faults += outcome.faults
        if outcome.violation:
            self.violations.append(outcome.seed)

    def line(self, elapsed_s: float) -> str:
        """One line for people."""
        return (
            f"{elapsed_s:6.0f} s  {self.histories} histories  {self.events:,} events"
            f"  {self.events / elapsed_s:,.0f} events/s  {self.simulated_s:,.0f} s simulated"
            f"  {self.acked:,} acknowledged  {self.terms:,} terms"
            f"  {len(self.violations)} violations"
        )

    def report(self, elapsed_s: float, workers: int) -> dict[str, object]:
        """Everything, for machines."""
        return {
            "histories": self.histories,
            "events": self.events,
            "events_per_s": round(self.events / elapsed_s),
            "elapsed_s": round(elapsed_s, 1),
            "workers": workers,
            "simulated_s": round(self.simulated_s),
            "acknowledged": self.acked,
            "reads": self.reads,
            "terms": self.terms,
            "faults": dict(self.faults.most_common()),
            "violations": sorted(self.violations),
        }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="play this one history")
    parser.add_argument("--seeds", type=int, help="how many histories to play")
    parser.add_argument("--seconds", type=float, help="for how long to play histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--events", type=int, help="events with faults")
    parser.add_argument("--workload", type=Workload, help="what clients want in all histories")
    parser.add_argument("--fleet", action="store_true", help="histories of whole nodes")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true", help="a line for each fault")
    options = parser.parse_args()
    if options.seeds is None and options.seconds is None:
        options.seconds = 60.0
    if options.events is None:
        options.events = fleet.EVENTS_DEFAULT if options.fleet else EVENTS_DEFAULT
    return options


def prepare() -> None:
    """Let a process play many histories quickly and without a word."""
    logging.disable(logging.CRITICAL)
    # Histories leave cycles behind; looking for them often costs more than their memory.
    gc.set_threshold(100_000, 20, 50)


Job = tuple[int, argparse.Namespace, float]


def _jobs(seeds: range, options: argparse.Namespace, deadline_s: float) -> Iterator[Job]:
    for seed in seeds:
        if time.monotonic() > deadline_s:
            return
        yield seed, options, deadline_s


def _play(job: Job) -> Outcome | None:
    seed, options, deadline_s = job
    if time.monotonic() > deadline_s:
        return None
    if options.fleet:
        return fleet.play(seed, events=options.events)
    return play(seed, events=options.events, workload=options.workload)


def _replay_command(seed: int, options: argparse.Namespace) -> str:
    default = fleet.EVENTS_DEFAULT if options.fleet else EVENTS_DEFAULT
    at = "" if options.events == default else f" --events {options.events}"
    of = f" --workload {options.workload}" if options.workload else ""
    kind = " --fleet" if options.fleet else ""
    return f"python -m tests.simulation{kind} --seed {seed}{at}{of}"


def _replay(options: argparse.Namespace) -> int:
    world: World | fleet.Fleet
    if options.fleet:
        world = fleet.Fleet(options.seed)
    else:
        world = World(options.seed, workload=options.workload)
    if options.verbose:
        world.faults.on_fault = lambda name: print(
            f"{world.schedule.events:8} {world.schedule.now_us / 1e6:10.6f} {name}"
        )
    try:
        outcome = world.run(options.events)
    except Exception:
        print(f"event {world.schedule.events}, {world.schedule.now_us / 1e6:.6f} s", flush=True)
        raise
    finally:
        world.end()
    print(f"seed {outcome.seed}: {outcome.events} events, trace {outcome.trace & (1 << 64) - 1:x}")
    print(dict(outcome.faults.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

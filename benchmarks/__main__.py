"""Ask the questions: `python -m benchmarks [--only NAME] [--quick] [--repeat N] [--no-record]`."""

import argparse
import importlib
import json
import os
import pkgutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from benchmarks import questions
from benchmarks.answers import Answer, Measurement, median_of
from benchmarks.machine import disk_syncs_per_s, git_state, machine_facts
from benchmarks.results import record, write_table
from benchmarks.workbench import Workbench


def main() -> None:
    """Ask, print one JSON line per measurement and record the medians."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=arguments.directory) as name:
        for question in _chosen(arguments.only):
            answer = _ask(question, Path(name), arguments)
            print(json.dumps(answer.as_json()), flush=True)
            if not arguments.no_record:
                record(answer, git_state(), machine_facts())
    if not arguments.no_record:
        write_table()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=_names(), help="ask this one")
    parser.add_argument("--quick", action="store_true", help="short windows and small data")
    parser.add_argument("--repeat", type=int, default=3, help="medians of so many runs")
    parser.add_argument("--no-record", action="store_true", help="only print")
    parser.add_argument("--directory", type=Path, help="where the nodes keep their data")
    return parser.parse_args()


def _names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(questions.__path__))


def _chosen(only: list[str] | None) -> Iterator[ModuleType]:
    for name in only or _names():
        yield importlib.import_module(f"benchmarks.questions.{name}")


def _ask(question: ModuleType, directory: Path, arguments: argparse.Namespace) -> Answer:
    name = question.__name__.rsplit(".", 1)[1]
    runs: list[list[Measurement]] = []
    for number in range(arguments.repeat):
        bench = Workbench(directory / f"{name}-{number}", is_quick=arguments.quick)
        runs.append(_run(question, bench))
        bench.clean()
        for measurement in runs[-1]:
            print(
                json.dumps({"question": name, "run": number, **measurement.as_json()}), flush=True
            )
    cases = [median_of(list(same)) for same in zip(*runs, strict=True)]
    text = (question.__doc__ or name).partition("\n")[0]
    return Answer(name, text, cases, runs=len(runs), is_quick=arguments.quick)


def _run(question: ModuleType, bench: Workbench) -> list[Measurement]:
    """Measure once, with the disk's own rate from right before and after beside it."""
    load = os.getloadavg()[0]
    before = disk_syncs_per_s(bench.directory)
    measured = list(question.measure(bench))
    syncs_per_s = (before + disk_syncs_per_s(bench.directory)) / 2
    return [measurement.beside(syncs_per_s, load) for measurement in measured]


if __name__ == "__main__":
    main()

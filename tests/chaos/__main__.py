"""`python -m tests.chaos --seconds 3600 --nodes 5 --seed 7`."""

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.report import Plan
from tests.chaos.run import run_chaos
from tests.chaos.writers import LOADS

_SEED_MAX = 1_000_000


def main() -> int:
    """Run once and report; return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long things break")
    parser.add_argument("--nodes", type=int, default=3, choices=(3, 5), help="nodes of the cluster")
    parser.add_argument("--seed", type=int, help="which faults come in which order")
    parser.add_argument("--load", choices=sorted(LOADS), default="steady", help="how much is sent")
    parser.add_argument("--json", type=Path, help="file for the report of programs")
    args = parser.parse_args()
    seed = random.randrange(_SEED_MAX) if args.seed is None else args.seed
    directory = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    print(f"seed {seed}, data in {directory}", flush=True)
    report = run_chaos(directory, Plan(args.seconds, args.nodes, seed, args.load))
    print(report.as_text())
    text = json.dumps(report.as_json())
    if args.json is None:
        print(text)
    else:
        args.json.write_text(text + "\n")
    if report.is_good:
        shutil.rmtree(directory)
        return 0
    print(f"the data directories and logs of the nodes are kept in {directory}")
    return 1


if __name__ == "__main__":
    sys.exit(main())

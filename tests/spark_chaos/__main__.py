"""`python -m tests.spark_chaos --rounds 30 --seed 7`."""

import argparse
import math
import random
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.spark_chaos.run import run_spark_chaos

_SEED_MAX = 1_000_000


def main() -> int:
    """Run once and report; return 1 when a record was lost or came twice."""
    parser = argparse.ArgumentParser(prog="spark_chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="how many kills")
    parser.add_argument("--nodes", type=int, default=3, help="nodes of the cluster")
    parser.add_argument("--seed", type=int, help="which moments")
    parser.add_argument("--minutes", type=float, default=math.inf, help="kill no longer than this")
    args = parser.parse_args()
    seed = random.randrange(_SEED_MAX) if args.seed is None else args.seed
    directory = Path(tempfile.mkdtemp(prefix="penstock-spark-chaos-"))
    print(f"seed {seed}, data in {directory}", flush=True)
    report = run_spark_chaos(
        directory, rounds=args.rounds, seed=seed, nodes=args.nodes, kill_s_max=60 * args.minutes
    )
    print({**asdict(report), "kills": dict(report.kills)})
    if report.is_good:
        shutil.rmtree(directory)
        return 0
    print(f"the data directories and logs are kept in {directory}")
    return 1


if __name__ == "__main__":
    sys.exit(main())

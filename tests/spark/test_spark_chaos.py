"""The short form of `make spark-chaos`; the long form is for an hour."""

from pathlib import Path

import pytest

from tests.spark_chaos.run import run_spark_chaos

ROUNDS = 3
SEED = 1


@pytest.mark.alone
@pytest.mark.crash
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("java")
def test_every_record_arrives_once_while_driver_executor_and_broker_are_killed(
    tmp_path: Path,
) -> None:
    report = run_spark_chaos(tmp_path, rounds=ROUNDS, seed=SEED, nodes=1)

    assert report.is_good, report
    assert report.kills.total() == ROUNDS
    assert report.acknowledged > 0

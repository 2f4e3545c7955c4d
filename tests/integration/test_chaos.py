"""The short form of `make chaos`; the long form is for hours."""

from pathlib import Path

import pytest

from tests.chaos.report import Plan
from tests.chaos.run import run_chaos

SECONDS = 60.0
SEED = 2


@pytest.mark.alone
@pytest.mark.crash
def test_no_promise_is_broken_while_nodes_links_and_disks_fail(tmp_path: Path) -> None:
    report = run_chaos(tmp_path, Plan(SECONDS, nodes=3, seed=SEED))

    print(report.as_text())
    assert report.findings.violations == []
    assert sum(report.faults.values()) >= 5
    assert report.findings.acknowledged["idempotent"] > 1_000

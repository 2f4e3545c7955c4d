"""What a run came to, for programs and for people."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from tests.chaos.checker import Findings
from tests.chaos.history import Failover, History
from tests.chaos.workers import Ledger


@dataclass(frozen=True)
class Plan:
    """What to run."""

    seconds: float
    nodes: int
    seed: int
    load: str = "steady"


@dataclass(frozen=True)
class Report:
    """What was done, what came of it, and which promises were broken."""

    plan: Plan
    faults: dict[str, int]
    findings: Findings
    history: History
    ledger: Ledger

    @property
    def is_good(self) -> bool:
        """True when no promise was broken."""
        return not self.findings.violations

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        gaps = {str(place): round(gap, 3) for place, gap in self.history.gap_max_s.items()}
        return {
            "seconds": self.plan.seconds,
            "nodes": self.plan.nodes,
            "seed": self.plan.seed,
            "load": self.plan.load,
            "faults": dict(sorted(self.faults.items())),
            "acknowledged": dict(self.findings.acknowledged),
            "duplicates": dict(self.findings.duplicates),
            "lost": dict(self.findings.lost),
            "commits": self.history.commit_count,
            "deliveries": self.ledger.deliveries,
            "settled": self.ledger.settled,
            "unavailable_s_max": dict(sorted(gaps.items())),
            "failover_s": _by_kind(self.history.failovers),
            "violations": self.findings.violations,
        }

    def as_text(self) -> str:
        """Return the report for people."""
        shown = self.as_json()
        lines = [
            f"{self.plan.nodes} nodes, {self.plan.seconds:.0f} s, {self.plan.load} load",
            f"seed {self.plan.seed}",
            f"faults: {sum(self.faults.values())} ({_pairs(shown['faults'])})",
            f"acknowledged: {self.findings.acknowledged.total()} ({_pairs(shown['acknowledged'])})",
            f"duplicates: {_pairs(shown['duplicates'])}",
            f"acknowledged and lost, as acks=1 allows: {shown['lost'].get('plain acks=1', 0)}",
            f"acknowledged commits of offsets: {shown['commits']}",
            f"messages settled by workers: {shown['settled']}, in {shown['deliveries']} deliveries",
            f"longest time without an acknowledgement: {_pairs(shown['unavailable_s_max'])} s",
            "failover, from the fault to the first acknowledgement of a record written after it:",
        ]
        lines += [
            f"  {kind}: {numbers['count']} partitions, p50 {numbers['p50']} s,"
            f" p99 {numbers['p99']} s"
            for kind, numbers in shown["failover_s"].items()
        ]
        violations = self.findings.violations
        lines.append(f"broken promises: {len(violations) or 'none'}")
        lines += [f"  {violation}" for violation in violations[:20]]
        return "\n".join(lines)


def _by_kind(failovers: list[Failover]) -> dict[str, dict[str, float]]:
    times: dict[str, list[float]] = defaultdict(list)
    for failover in failovers:
        times[failover.kind].append(failover.took_s)
        times["all"].append(failover.took_s)
    return {kind: _summary(each) for kind, each in sorted(times.items())}


def _summary(times_s: list[float]) -> dict[str, float]:
    cuts = quantiles(times_s, n=100, method="inclusive") if len(times_s) > 1 else times_s * 99
    return {"count": len(times_s), "p50": round(cuts[49], 2), "p99": round(cuts[98], 2)}


def _pairs(numbers: dict[str, float]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items()) or "none"


def sentences(lines: Iterable[dict[str, object]], node: int) -> list[str]:
    """Return what a node logged that it should not have."""
    return [
        f"node {node} logged: {line.get('message')} {line.get('reason') or line.get('error') or ''}"
        for line in lines
        if line.get("level") in ("error", "critical")
    ]

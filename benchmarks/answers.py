"""What a question gives: figures per case, and whether they meet the target."""

import statistics
from dataclasses import dataclass, replace
from typing import Any

# Rates whose ratio to the disk's own is worth knowing.
RATE = "per_s"
DISK_RATE = "disk_syncs_per_s"
DISK_RATIO = "per_disk_sync"


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one figure."""

    figure: str
    least: float | None = None
    most: float | None = None

    def is_met(self, figures: dict[str, float]) -> bool:
        """True when the figure lies within the bound."""
        value = figures[self.figure]
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )

    def __str__(self) -> str:
        bound = f">= {self.least:,g}" if self.least is not None else f"<= {self.most:,g}"
        return f"{self.figure} {bound}"


@dataclass(frozen=True, slots=True)
class Measurement:
    """The figures of one case of a question."""

    case: str
    figures: dict[str, float]
    target: Target | None = None

    def beside(self, disk_syncs_per_s: float, load: float) -> "Measurement":
        """Return it with the disk's rate and the machine's load, where it has not its own."""
        figures = {DISK_RATE: disk_syncs_per_s, "load": load, **self.figures}
        if RATE in figures:
            figures[DISK_RATIO] = figures[RATE] / figures[DISK_RATE]
        return replace(self, figures=figures)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        out: dict[str, Any] = {"case": self.case}
        out.update({name: rounded(value) for name, value in self.figures.items()})
        if self.target is not None:
            out["target"] = str(self.target)
            out["is_met"] = self.target.is_met(self.figures)
        return out


@dataclass(frozen=True, slots=True)
class Answer:
    """All cases of a question, as medians of several runs."""

    name: str
    question: str
    cases: list[Measurement]
    runs: int
    is_quick: bool

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "question": self.question,
            "runs": self.runs,
            "quick": self.is_quick,
            "medians": [case.as_json() for case in self.cases],
        }


def median_of(same: list[Measurement]) -> Measurement:
    """Return the medians of several runs of one case."""
    figures = {
        name: statistics.median(measurement.figures[name] for measurement in same)
        for name in same[0].figures
    }
    return replace(same[0], figures=figures)


def rounded(value: float) -> float:
    """Keep the digits that mean something."""
    if abs(value) >= 100:
        return round(value)
    return float(f"{value:.3g}")

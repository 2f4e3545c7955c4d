"""What a job found: numbers for tables and plots, before anybody decides how they look."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; `marked` are the numbers of rows that stand out."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot: a value for each time, None where there is none."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePlot:
    """Lines over time."""

    name: str
    title: str
    summary: str
    """The plot in one sentence, for those who do not see it."""
    unit: str
    times_ms: Sequence[int]
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; a marked one stands out."""

    label: str
    value: float
    is_marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPlot:
    """Bars from the left, and perhaps a line that they are measured against."""

    name: str
    title: str
    summary: str
    unit: str
    bars: Sequence[Bar]
    threshold: float | None = None
    threshold_label: str = ""


Plot = TimePlot | BarPlot


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that one job found."""

    kind: str
    title: str
    topics: Sequence[str]
    start_ms: int | None
    end_ms: int | None
    figures: Sequence[tuple[str, str]] = ()
    """The few numbers that matter most, with what they are."""
    notes: Sequence[str] = ()
    plots: Sequence[Plot] = field(default_factory=tuple)
    tables: Sequence[Table] = field(default_factory=tuple)

    def as_json(self) -> dict[str, Any]:
        """Return tables and plots as plain values."""
        return {
            "report": self.kind,
            "topics": list(self.topics),
            "start_ms": self.start_ms,
            "end_ms": self.end_ms,
            "notes": list(self.notes),
            "tables": {
                table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
                for table in self.tables
            },
            "plots": {plot.name: _plot_as_json(plot) for plot in self.plots},
        }


def _plot_as_json(plot: Plot) -> dict[str, Any]:
    if isinstance(plot, BarPlot):
        return {bar.label: bar.value for bar in plot.bars}
    return {
        "times_ms": list(plot.times_ms),
        **{series.name: list(series.values) for series in plot.series},
    }

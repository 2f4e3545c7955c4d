"""Pages: well formed, self-contained, readable without seeing the plots."""

import re
import xml.etree.ElementTree as ET

import pytest

from penstock.insight import (
    Bar,
    BarPlot,
    Report,
    Series,
    Table,
    TimePlot,
    bucket_ms,
    bucket_starts,
    page_of,
)
from penstock.insight.plots import drawn_series, svg_of
from penstock.insight.scales import (
    duration_ticks,
    show_bytes,
    show_duration,
    show_number,
    time_labels,
    value_ticks,
)

HOUR_MS = 3_600_000
TIMES_MS = list(range(0, HOUR_MS, 60_000))


def lines(*series: Series) -> TimePlot:
    return TimePlot(
        name="rate",
        title="Rate <of> all",
        summary="Per minute & partition.",
        unit="/s",
        times_ms=TIMES_MS[: len(series[0].values)],
        series=series,
    )


def bars(*given: Bar) -> BarPlot:
    return BarPlot(name="bars", title="Bars", summary="All.", unit="", bars=given, threshold=4.0)


def test_a_page_needs_nothing_else_and_keeps_text_apart_from_markup() -> None:
    report = Report(
        kind="traffic",
        title="Traffic",
        topics=["<orders>"],
        start_ms=0,
        end_ms=HOUR_MS,
        figures=[("records", "10 k")],
        notes=["a < b"],
        plots=[lines(Series("a", [1.0, 2.0])), bars(Bar("<key>", 5, is_marked=True))],
        tables=[
            Table("t", "T & U", ["name", "records"], [["<x>", 1234], [None, 5]], frozenset({0}))
        ],
    )

    page = page_of(report, made_ms=0)

    assert not re.search(r"https?://|<script|@import|url\(", page)
    assert "<orders>" not in page
    assert "&lt;orders&gt;" in page
    assert '<td class="number">1,234</td>' in page
    assert "<td>–</td>" in page
    assert "prefers-color-scheme: dark" in page


@pytest.mark.parametrize(
    "plot",
    [
        lines(Series("a", [1.0, None, 3.0, 2.0])),
        lines(Series("a", [0.0])),
        lines(*(Series(f"s{number}", [1.0, 2.0]) for number in range(12))),
        bars(Bar("a", 0.0), Bar("b" * 100, 12.0, is_marked=True)),
    ],
)
def test_a_plot_is_well_formed_and_has_a_title_and_a_description(
    plot: TimePlot | BarPlot,
) -> None:
    svg = ET.fromstring(svg_of(plot))

    assert svg.get("role") == "img"
    named = {child.get("id"): child.text for child in svg}
    title, summary = str(svg.get("aria-labelledby")).split()
    assert (named[title], named[summary]) == (plot.title, plot.summary)


def test_a_gap_breaks_a_line() -> None:
    shapes = svg_of(lines(Series("a", [1.0, 2.0, None, 3.0])))

    assert (shapes.count("<polyline"), shapes.count("<circle")) == (1, 1)


def test_many_lines_become_eight_and_nothing_is_lost() -> None:
    plot = lines(*(Series(f"s{number}", [float(number)]) for number in range(12)))

    drawn = drawn_series(plot)

    assert [each.name for each in drawn][-2:] == ["s5", "5 others"]
    assert sum(each.values[0] or 0 for each in drawn) == sum(range(12))


@pytest.mark.parametrize("span_ms", [1, 1000, 90_000, HOUR_MS, 40 * HOUR_MS, 3000 * HOUR_MS])
def test_buckets_are_few_and_cover_the_span(span_ms: int) -> None:
    start_ms = 1_700_000_123_456

    width_ms = bucket_ms(start_ms, start_ms + span_ms)
    starts = bucket_starts(start_ms, start_ms + span_ms, width_ms)

    assert 1 <= len(starts) <= 121
    assert starts[0] <= start_ms
    assert starts[-1] <= start_ms + span_ms < starts[-1] + width_ms


def test_axes_have_round_steps() -> None:
    assert value_ticks(7) == [0, 2, 4, 6, 8]
    assert value_ticks(0) == [0, 1]
    assert duration_ticks(3_600_000) == [0, 900_000, 1_800_000, 2_700_000, 3_600_000]
    assert [label for _, label in time_labels(TIMES_MS)] == [
        "00:00", "00:10", "00:20", "00:30", "00:40", "00:50",
    ]  # fmt: skip


def test_numbers_are_short() -> None:
    assert [show_number(each) for each in (0, 12.34, 9999, 12_300, 4_560_000)] == [
        "0", "12.3", "9,999", "12.3 k", "4.56 M",
    ]  # fmt: skip
    assert [show_bytes(each) for each in (12, 2048, 5 << 20)] == ["12 B", "2 KiB", "5 MiB"]
    assert [show_duration(each) for each in (12, 3400, 90_000)] == ["12 ms", "3.4 s", "1.5 min"]

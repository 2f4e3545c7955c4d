"""Plots as SVG: inline, without scripts, in the colours of the page that they stand in.

Every plot has a title and a description for those who do not see it. Values are told where the
pointer rests, by the titles of shapes that nobody sees.
"""

from collections.abc import Iterator, Sequence
from html import escape

from penstock.insight.report import Bar, BarPlot, Plot, Series, TimePlot
from penstock.insight.scales import (
    duration_ticks,
    show_bytes,
    show_duration,
    show_moment,
    show_number,
    time_labels,
    value_ticks,
)

WIDTH = 760
SERIES_MAX = 8
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 30
_HEIGHT = 260
_BAR_HEIGHT, _BAR_STEP = 16, 28
_LABEL_WIDTH = 190
_VALUE_WIDTH = 110
_LABEL_CHARACTERS_MAX = 26
_UNITS = {"bytes": show_bytes, "ms": show_duration}


def svg_of(plot: Plot) -> str:
    """Return a plot as one SVG element."""
    if isinstance(plot, TimePlot):
        return _svg(plot, _HEIGHT, _time_shapes(plot))
    rows = len(plot.bars)
    height = _TOP + rows * _BAR_STEP + (22 if plot.threshold is not None else 6)
    return _svg(plot, height, _bar_shapes(plot))


def show_value(value: float, unit: str) -> str:
    """Write a value of a plot with its unit."""
    if unit in _UNITS:
        return _UNITS[unit](value)
    return f"{show_number(value)} {unit}".strip()


def drawn_series(plot: TimePlot) -> list[Series]:
    """Return the lines that are drawn: where there are too many, the smallest become one."""
    if len(plot.series) <= SERIES_MAX:
        return list(plot.series)
    ranked = sorted(plot.series, key=lambda each: -sum(value or 0 for value in each.values))
    rest = ranked[SERIES_MAX - 1 :]
    columns = zip(*(each.values for each in rest), strict=True)
    others = [sum(value or 0 for value in column) for column in columns]
    return [*ranked[: SERIES_MAX - 1], Series(f"{len(rest)} others", others)]


def _svg(plot: Plot, height: int, shapes: Iterator[str]) -> str:
    name = escape(plot.name, quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-labelledby="{name}-title {name}-summary">'
        f'<title id="{name}-title">{escape(plot.title)}</title>'
        f'<desc id="{name}-summary">{escape(plot.summary)}</desc>{"".join(shapes)}</svg>'
    )


def _time_shapes(plot: TimePlot) -> Iterator[str]:
    series = drawn_series(plot)
    most = max((value or 0 for each in series for value in each.values), default=0)
    ticks = duration_ticks(most) if plot.unit == "ms" else value_ticks(most)
    bottom = _HEIGHT - _BOTTOM
    for tick in ticks:
        y = _y(tick, ticks[-1])
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        label = escape(show_value(tick, plot.unit if plot.unit in _UNITS else ""))
        yield f'<text class="tick" x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{label}</text>'
    count = len(plot.times_ms)
    for number, label in time_labels(plot.times_ms):
        x = _x(number, count)
        yield f'<line class="axis" x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}"/>'
        yield f'<text class="tick" x="{x}" y="{bottom + 18}" text-anchor="middle">{label}</text>'
    yield f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    for number, each in enumerate(series):
        yield from _line(each, number, ticks[-1])
    yield from _hints(plot, series)


def _line(series: Series, number: int, top: float) -> Iterator[str]:
    """Draw a line; where values are missing it is broken, and a value alone is a dot."""
    count = len(series.values)
    for start, values in _stretches(series.values):
        points = [
            f"{_x(start + step, count)},{_y(value, top)}" for step, value in enumerate(values)
        ]
        if len(points) == 1:
            x, y = points[0].split(",")
            yield f'<circle class="dot s{number}" cx="{x}" cy="{y}" r="3"/>'
        else:
            yield f'<polyline class="line s{number}" points="{" ".join(points)}"/>'


def _hints(plot: TimePlot, series: Sequence[Series]) -> Iterator[str]:
    count = len(plot.times_ms)
    width = (WIDTH - _LEFT - _RIGHT) / max(count - 1, 1)
    for number, time_ms in enumerate(plot.times_ms):
        lines = [f"{show_moment(time_ms)} UTC"]
        for each in series:
            value = each.values[number]
            if value is not None:
                lines.append(f"{each.name}: {show_value(value, plot.unit)}")
        x = round(_x(number, count) - width / 2, 1)
        says = escape("\n".join(lines))
        yield (
            f'<rect class="hint" x="{x}" y="{_TOP}" width="{round(width, 1)}"'
            f' height="{_HEIGHT - _TOP - _BOTTOM}"><title>{says}</title></rect>'
        )


def _bar_shapes(plot: BarPlot) -> Iterator[str]:
    most = max([bar.value for bar in plot.bars] + [plot.threshold or 0, 1e-9])
    room = WIDTH - _LABEL_WIDTH - _VALUE_WIDTH
    for number, bar in enumerate(plot.bars):
        yield from _bar(bar, plot.unit, _TOP + number * _BAR_STEP, room * bar.value / most)
    if plot.threshold is not None:
        x = round(_LABEL_WIDTH + room * plot.threshold / most, 1)
        end = _TOP + len(plot.bars) * _BAR_STEP
        label = escape(plot.threshold_label)
        yield f'<line class="threshold" x1="{x}" x2="{x}" y1="{_TOP - 4}" y2="{end}"/>'
        yield f'<text class="tick" x="{x}" y="{end + 14}" text-anchor="middle">{label}</text>'


def _bar(bar: Bar, unit: str, y: int, width: float) -> Iterator[str]:
    width = round(max(width, 1.0), 1)
    middle = y + _BAR_HEIGHT / 2 + 4
    label = bar.label
    if len(label) > _LABEL_CHARACTERS_MAX:
        label = label[: _LABEL_CHARACTERS_MAX - 1] + "…"
    says = show_value(bar.value, unit) + (" · hot" if bar.is_marked else "")
    kind = "bar marked" if bar.is_marked else "bar"
    radius = min(4, width / 2)
    straight = round(width - radius, 1)
    yield (
        f'<text class="label" x="{_LABEL_WIDTH - 10}" y="{middle}" text-anchor="end">'
        f"{escape(label)}</text>"
        f'<path class="{kind}" d="M{_LABEL_WIDTH},{y} h{straight} q{radius},0 {radius},{radius}'
        f' v{_BAR_HEIGHT - 2 * radius} q0,{radius} -{radius},{radius} h-{straight} z">'
        f"<title>{escape(f'{bar.label}: {says}')}</title></path>"
        f'<text class="value" x="{round(_LABEL_WIDTH + width + 8, 1)}" y="{middle}">'
        f"{escape(says)}</text>"
    )


def _stretches(values: Sequence[float | None]) -> Iterator[tuple[int, list[float]]]:
    start, stretch = 0, list[float]()
    for number, value in enumerate(values):
        if value is None:
            if stretch:
                yield start, stretch
            start, stretch = number + 1, []
        else:
            stretch.append(value)
    if stretch:
        yield start, stretch


def _x(number: int, count: int) -> float:
    return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * number / max(count - 1, 1), 1)


def _y(value: float, top: float) -> float:
    return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top, 1)

"""A report as one HTML page that needs nothing else: no network, no scripts, light and dark."""

from collections.abc import Iterator
from html import escape

from penstock.insight.plots import drawn_series, show_value, svg_of
from penstock.insight.report import Cell, Plot, Report, Table, TimePlot
from penstock.insight.scales import show_moment

# Neighbours differ for those who see few colours, too. The second row is for dark pages.
_LIGHT = ("#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#e87ba4", "#008300", "#4a3aa7", "#e34948")
_DARK = ("#3987e5", "#d95926", "#199e70", "#c98500", "#d55181", "#008300", "#9085e9", "#e66767")
_STYLE = """
:root { color-scheme: light dark; --page: #f9f9f7; --card: #fcfcfb; --ink: #0b0b0b;
  --soft: #52514e; --faint: #898781; --grid: #e1e0d9; --axis: #c3c2b7; --mark: #d03b3b;
  --edge: rgba(11,11,11,.1); LIGHT }
@media (prefers-color-scheme: dark) { :root { --page: #0d0d0d; --card: #1a1a19; --ink: #ffffff;
  --soft: #c3c2b7; --faint: #898781; --grid: #2c2c2a; --axis: #383835; --mark: #d03b3b;
  --edge: rgba(255,255,255,.1); DARK } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.45;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", sans-serif }
main { max-width: 880px; margin: 0 auto; padding: 32px 20px 64px }
h1 { font-size: 24px; margin: 0 0 4px } h2 { font-size: 16px; margin: 0 0 2px }
.sub, figcaption p, .note { color: var(--soft); margin: 0 }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0 0; padding: 0 }
.tile { background: var(--card); border: 1px solid var(--edge); border-radius: 8px;
  padding: 12px 16px; min-width: 128px; flex: 1 }
.tile dt { color: var(--soft); font-size: 13px } .tile dd { margin: 2px 0 0; font-size: 22px;
  font-weight: 600 }
figure, section { background: var(--card); border: 1px solid var(--edge); border-radius: 8px;
  padding: 18px 20px; margin: 16px 0 0 }
figcaption { margin-bottom: 10px } figcaption p { font-size: 13px }
.note { margin-top: 12px; font-size: 14px; border-left: 3px solid var(--axis); padding-left: 10px }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; list-style: none; margin: 0 0 8px;
  padding: 0; font-size: 13px; color: var(--soft) }
.legend i { display: inline-block; width: 14px; height: 3px; border-radius: 2px;
  margin-right: 6px; vertical-align: middle }
svg { display: block; width: 100%; height: auto; overflow: visible }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--soft) }
svg .tick { fill: var(--faint); font-variant-numeric: tabular-nums } svg .label { fill: var(--ink) }
.grid { stroke: var(--grid) } .axis { stroke: var(--axis) }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }
.hint { fill: transparent } .hint:hover { fill: var(--ink); fill-opacity: .06 }
.bar { fill: var(--c0) } .bar.marked { fill: var(--mark) }
.threshold { stroke: var(--faint); stroke-dasharray: 4 3 }
.scroll { overflow-x: auto; max-height: 480px } table { border-collapse: collapse; width: 100%;
  font-size: 14px }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 13px; position: sticky;
  top: 0; background: var(--card) }
th, td { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--grid); vertical-align: top;
  overflow-wrap: anywhere }
th.number, .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
tr.marked td:first-child { box-shadow: inset 3px 0 var(--mark); padding-left: 10px }
details { margin-top: 10px; font-size: 13px } summary { color: var(--soft); cursor: pointer }
footer { color: var(--faint); font-size: 13px; margin-top: 24px }
SERIES
@media print { body { background: none } figure, section { break-inside: avoid } }
"""


def page_of(report: Report, *, made_ms: int) -> str:
    """Return the page of a report."""
    title = escape(report.title)
    body = "".join(_body(report, made_ms))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_style()}</style></head><body><main>{body}</main></body></html>\n"
    )


def _style() -> str:
    def colours(palette: tuple[str, ...]) -> str:
        return " ".join(f"--c{number}: {colour};" for number, colour in enumerate(palette))

    series = "\n".join(
        f".line.s{number} {{ stroke: var(--c{number}) }} .dot.s{number}, .key.s{number}"
        f" {{ fill: var(--c{number}); background: var(--c{number}) }}"
        for number in range(len(_LIGHT))
    )
    style = _STYLE.replace("LIGHT", colours(_LIGHT)).replace("DARK", colours(_DARK))
    return style.replace("SERIES", series)


def _body(report: Report, made_ms: int) -> Iterator[str]:
    yield f"<header><h1>{escape(report.title)}</h1>"
    yield f'<p class="sub">{escape(_scope(report))}</p></header>'
    if report.figures:
        tiles = "".join(
            f'<div class="tile"><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>'
            for name, value in report.figures
        )
        yield f'<dl class="tiles">{tiles}</dl>'
    for note in report.notes:
        yield f'<p class="note">{escape(note)}</p>'
    for plot in report.plots:
        yield from _figure(plot)
    for table in report.tables:
        yield f"<section><h2>{escape(table.title)}</h2>{_table(table)}</section>"
    yield f"<footer>Made by penstock insight, {show_moment(made_ms)} UTC.</footer>"


def _scope(report: Report) -> str:
    topics = ", ".join(report.topics)
    if report.start_ms is None or report.end_ms is None:
        return topics
    return f"{topics} · {show_moment(report.start_ms)} to {show_moment(report.end_ms)} UTC"


def _figure(plot: Plot) -> Iterator[str]:
    yield f"<figure><figcaption><h2>{escape(plot.title)}</h2><p>{escape(plot.summary)}</p>"
    yield "</figcaption>"
    if isinstance(plot, TimePlot):
        series = drawn_series(plot)
        if len(series) > 1:
            keys = "".join(
                f'<li><i class="key s{number}"></i>{escape(each.name)}</li>'
                for number, each in enumerate(series)
            )
            yield f'<ul class="legend">{keys}</ul>'
    yield svg_of(plot)
    if isinstance(plot, TimePlot):
        yield f"<details><summary>Numbers</summary>{_table(_numbers(plot))}</details>"
    yield "</figure>"


def _numbers(plot: TimePlot) -> Table:
    rows = [
        [show_moment(time_ms), *(_shown(each.values[number], plot.unit) for each in plot.series)]
        for number, time_ms in enumerate(plot.times_ms)
    ]
    return Table(plot.name, plot.title, ["time", *(each.name for each in plot.series)], rows)


def _shown(value: float | None, unit: str) -> str | None:
    return None if value is None else show_value(value, unit)


def _table(table: Table) -> str:
    columns = len(table.columns)
    kinds = [" class=number" if _is_numeric(table, number) else "" for number in range(columns)]
    head = "".join(
        f'<th scope="col"{kind}>{escape(column)}</th>'
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    rows = "".join(
        f"<tr{' class=marked' if number in table.marked else ''}>{''.join(map(_cell, row))}</tr>"
        for number, row in enumerate(table.rows)
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _is_numeric(table: Table, column: int) -> bool:
    return any(isinstance(row[column], int | float) for row in table.rows)


def _cell(value: Cell) -> str:
    if isinstance(value, int | float):
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
        return f'<td class="number">{text}</td>'
    return f"<td>{escape('–' if value is None else value)}</td>"

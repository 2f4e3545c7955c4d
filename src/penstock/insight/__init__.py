"""What is behind numbers and plots about a cluster's traffic and deliveries.

Plain code: entries of a delivery journal go in and what happened to messages comes out; a report's
numbers go in and a page comes out that needs no network and no script. It promises that a plot can
be read without seeing it, by its title, its summary and its table. Reading topics and counting is
left to the jobs in `penstock.spark`.
"""

from penstock.insight.buckets import bucket_ms, bucket_starts, show_width
from penstock.insight.happenings import Follower, Happening
from penstock.insight.page import page_of
from penstock.insight.report import Bar, BarPlot, Cell, Plot, Report, Series, Table, TimePlot
from penstock.insight.scales import show_bytes, show_duration, show_moment, show_number

__all__ = [
    "Bar",
    "BarPlot",
    "Cell",
    "Follower",
    "Happening",
    "Plot",
    "Report",
    "Series",
    "Table",
    "TimePlot",
    "bucket_ms",
    "bucket_starts",
    "page_of",
    "show_bytes",
    "show_duration",
    "show_moment",
    "show_number",
    "show_width",
]

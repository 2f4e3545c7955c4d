"""Spark registers the source by itself: it looks for modules whose names begin with `pyspark_`."""

from penstock.spark import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]

"""Reads what a batch of the source would, in this process and without a session of Spark."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from penstock.spark.options import parse_options
from penstock.spark.readers import PenstockBatchReader


def read_here(given: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield records by the options of the source, one range after the other.

    Memory stays small, but one process reads: large ranges are for Spark.
    """
    reader = PenstockBatchReader(parse_options(given))
    for partition in reader.partitions():
        yield from reader.read(partition)

"""The fastest sink that Python can give Spark: Arrow record batches, counted and dropped.

What a real sink takes on top of this is its own work; what this takes is Spark's.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType


class Discarded(DataSource):
    """Takes any rows."""

    @classmethod
    def name(cls) -> str:
        """Return the word for `format`."""
        return "discarded"

    def writer(self, schema: StructType, overwrite: bool) -> "DiscardingWriter":  # noqa: ARG002
        """Return a writer."""
        return DiscardingWriter()


@dataclass
class Counted(WriterCommitMessage):
    """A task has seen so many rows."""

    rows: int


class DiscardingWriter(DataSourceArrowWriter):
    """Counts rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Counted:
        """Count the rows of one task."""
        return Counted(sum(batch.num_rows for batch in iterator))

"""The fastest source that Python can give Spark: Arrow files, mapped into memory and handed over.

What a real source takes on top of this is its own work; what this takes is Spark's.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark import PenstockSource


class ArrowFiles(DataSource):
    """Reads the files of a directory, one task each, with the columns of the Penstock source."""

    @classmethod
    def name(cls) -> str:
        """Return the word for `format`."""
        return "arrow-files"

    def schema(self) -> str:
        """Return the columns of the Penstock source."""
        usual = {"kafka.bootstrap.servers": "localhost", "subscribe": "any"}
        return PenstockSource(usual).schema()

    def reader(self, schema: StructType) -> "ArrowFilesReader":  # noqa: ARG002
        """Return a reader."""
        return ArrowFilesReader(self.options["directory"])


class ArrowFilesReader(DataSourceReader):
    """Reads Arrow's file format."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def partitions(self) -> list[InputPartition]:
        """Return the files."""
        return [InputPartition(str(path)) for path in sorted(Path(self._directory).iterdir())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one file."""
        with pa.memory_map(partition.value) as source:
            file = pa.ipc.open_file(source)
            for index in range(file.num_record_batches):
                yield file.get_batch(index)

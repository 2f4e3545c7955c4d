"""`format("penstock")`: the class that Spark finds.

Spark pickles the source, plans with it in a process of its own, and sends reader and ranges from
there to the executors; so all of these are plain values, and whoever needs a connection opens it
where it runs.
"""

import importlib

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from penstock.errors import InvalidRequest
from penstock.spark.options import parse_options
from penstock.spark.readers import PenstockBatchReader, PenstockStreamReader
from penstock.spark.schema import spark_schema

SINK_MODULE = "penstock.spark.sink"


class PenstockSource(DataSource):
    """Topics of Penstock, or of any Kafka, as rows."""

    @classmethod
    def name(cls) -> str:
        """Return the word for `format`."""
        return "penstock"

    def schema(self) -> str:
        """Return the columns of Spark's Kafka source, or those that were asked for."""
        return spark_schema(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> PenstockBatchReader:
        """Return a reader for a batch."""
        options = parse_options(self.options)
        _check_schema(schema, options.columns)
        return PenstockBatchReader(options)

    def streamReader(self, schema: StructType) -> PenstockStreamReader:  # noqa: N802
        """Return a reader for a stream."""
        options = parse_options(self.options)
        _check_schema(schema, options.columns)
        return PenstockStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer for a batch."""
        sink = importlib.import_module(SINK_MODULE)
        writer: DataSourceWriter = sink.batch_writer(self.options, schema, overwrite=overwrite)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a writer for a stream."""
        sink = importlib.import_module(SINK_MODULE)
        writer: DataSourceStreamWriter = sink.stream_writer(
            self.options, schema, overwrite=overwrite
        )
        return writer


def _check_schema(schema: StructType, columns: tuple[str, ...]) -> None:
    if tuple(schema.fieldNames()) != columns:
        raise InvalidRequest(
            f"the schema has {', '.join(schema.fieldNames())}, the source has"
            f" {', '.join(columns)}; use the option columns to choose"
        )

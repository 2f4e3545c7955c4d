"""Parquet files and Delta tables as views.

Spark reads Delta through a library for Java that is not needed here: the table's own log says which
files belong to it, and Spark reads those as Parquet. So a Delta table is what it is at the start.
"""

from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import InvalidRequest
from penstock.pipelines import TableSource


def read_table(session: SparkSession, source: TableSource) -> DataFrame:
    """Return the view of a table."""
    if source.format == "delta":
        return _delta(session, source.path)
    try:
        files = session.read.parquet(source.path)
    except AnalysisException as error:
        raise InvalidRequest(f"{source.path} cannot be read: {_first_line(error)}") from None
    if source.is_stream:
        return session.readStream.schema(files.schema).parquet(source.path)
    return files


def _delta(session: SparkSession, path: str) -> DataFrame:
    try:
        table = DeltaTable(path)
        files = table.file_uris()
    except DeltaError as error:
        raise InvalidRequest(f"{path} is not a Delta table: {_first_line(error)}") from None
    if not files:
        raise InvalidRequest(f"{path} is a Delta table without rows; there is nothing to read")
    # Values of partition columns are in the names of directories, below the table's own.
    base = path if "://" in path else Path(path).as_uri()
    files = [file if "://" in file else Path(file).as_uri() for file in files]
    return session.read.option("basePath", base).parquet(*files)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]

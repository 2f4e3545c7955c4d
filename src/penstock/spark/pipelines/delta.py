"""Rows into Delta tables, each micro-batch once.

Executors write Parquet files with names of their own; the driver commits the files of a micro-batch
in one version of the table, together with the number of the micro-batch as application transaction
of the query. What may crash, and what is found then:

- An executor stops while it writes. No version names its file; the task is repeated under another
  name, and `vacuum` removes the first file some day.
- The driver stops before the commit. The same; Spark repeats the micro-batch from the checkpoint.
- The driver stops after the commit and before Spark has noted that the micro-batch is done. Spark
  repeats it, the table says that the transaction was committed, and nothing is added.
- The checkpoint is gone. A new query has another identity, and begins anew: rows are added again.
"""

import datetime as dt
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.clock import SystemClock
from penstock.errors import InvalidRequest
from penstock.pipelines import OutputMode
from penstock.spark.archive_table import ArchiveLocation

_MANIFEST = "path string, size_bytes bigint, records bigint, partition_values string, query string"
_MANIFEST_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("records", pa.int64()),
        ("partition_values", pa.string()),
        ("query", pa.string()),
    ]
)
_QUERY_PROPERTY = "sql.streaming.queryId"

PartitionValues = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DeltaSink:
    """Writes micro-batches into a table; for `foreachBatch`."""

    path: str
    partition_by: tuple[str, ...]
    mode: OutputMode
    checkpoint: str

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Write one micro-batch, unless the table has it already."""
        schema = _arrow_schema(rows.schema)
        # Its directory is there when executors write, and columns that do not fit are told before.
        table = self._table(schema)
        if self.partition_by:
            # Rows of one directory meet in one task, so that there are few files.
            rows = rows.repartition(*self.partition_by)
        writing = FileWriting(self.path, schema, self.partition_by)
        files = rows.mapInArrow(writing, _MANIFEST).collect()
        if not files and self.mode == "append":
            return
        query = (files[0]["query"] if files else None) or query_of(self.checkpoint)
        done = table.transaction_version(query)
        if done is not None and done >= epoch:
            return
        actions: list[AddAction | RemoveAction] = [_add_action(each.asDict()) for each in files]
        table.create_write_transaction(
            actions,
            "overwrite" if self.mode == "complete" else "append",
            schema,
            list(self.partition_by),
            commit_properties=CommitProperties(app_transactions=[Transaction(query, epoch)]),
        )

    def _table(self, schema: pa.Schema) -> DeltaTable:
        try:
            table = DeltaTable.create(
                self.path, schema, mode="ignore", partition_by=list(self.partition_by)
            )
        except (DeltaError, OSError) as error:
            raise InvalidRequest(f"{self.path} cannot be a Delta table: {error}") from None
        held = [field.name for field in table.schema().fields]
        if sorted(held) != sorted(schema.names):
            raise InvalidRequest(
                f"the Delta table {self.path} has the columns {', '.join(held)}, the rows have"
                f" {', '.join(schema.names)}"
            )
        return table


@dataclass(frozen=True, slots=True)
class FileWriting:
    """Writes the rows of one task, in an executor; yields a row about each file."""

    path: str
    schema: pa.Schema
    partition_by: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write record batches, a file for each directory that their rows belong to."""
        files: dict[PartitionValues, _File] = {}
        for batch in batches:
            # Spark names types a little differently from batch to batch.
            table = pa.Table.from_batches([batch]).cast(self.schema)
            for values, part in _by_values(table, self.partition_by):
                if values not in files:
                    files[values] = self._open(values)
                files[values].write(part.drop_columns(list(self.partition_by)))
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_PROPERTY) if context is not None else None
        manifest = [{**file.close(), "query": query} for file in files.values()]
        yield pa.RecordBatch.from_pylist(manifest, schema=_MANIFEST_SCHEMA)

    def _open(self, values: PartitionValues) -> "_File":
        texts = {
            name: partition_text(value)
            for name, value in zip(self.partition_by, values, strict=True)
        }
        location = ArchiveLocation(self.path)
        directory = "/".join(f"{quote(name)}={_directory(text)}" for name, text in texts.items())
        filesystem = location.filesystem()
        if directory:
            filesystem.create_dir(directory, recursive=True)
        path = f"{directory}/{uuid.uuid4()}.parquet".lstrip("/")
        held = [field for field in self.schema if field.name not in self.partition_by]
        return _File(location, path, texts, filesystem.open_output_stream(path), pa.schema(held))


class _File:
    """One file that is being written."""

    def __init__(
        self,
        location: ArchiveLocation,
        path: str,
        partition_values: dict[str, str | None],
        sink: pa.NativeFile,
        schema: pa.Schema,
    ) -> None:
        self._location = location
        self._path = path
        self._values = partition_values
        self._sink = sink
        self._writer = pq.ParquetWriter(sink, schema, compression="zstd")
        self._records = 0

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self._records += table.num_rows

    def close(self) -> dict[str, Any]:
        """Close the file, durably where that is up to us, and return what a commit needs."""
        self._writer.close()
        size_bytes = self._sink.tell()
        self._sink.close()
        self._location.sync(self._path)
        return {
            "path": self._path,
            "size_bytes": size_bytes,
            "records": self._records,
            "partition_values": json.dumps(self._values),
        }


def query_of(checkpoint: str) -> str:
    """Return the identity of a query from its checkpoint; on a Connect server no task knows it."""
    try:
        with ArchiveLocation(checkpoint).filesystem().open_input_stream("metadata") as file:
            return str(json.loads(file.read())["id"])
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise InvalidRequest(
            f"{checkpoint}/metadata cannot be read, which says whose micro-batches are in the"
            f" table: {error}"
        ) from None


def partition_text(value: Any) -> str | None:
    """Write the value of a partition column as Delta does."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


def _directory(text: str | None) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if text is None else quote(text, safe="")


def _by_values(
    table: pa.Table, columns: Sequence[str]
) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Split rows by the values of some columns."""
    if not columns:
        yield (), table
        return
    rows = {tuple(row.values()) for row in table.select(list(columns)).to_pylist()}
    for values in rows:
        mask = None
        for name, value in zip(columns, values, strict=True):
            column = table[name]
            is_same = pc.is_null(column) if value is None else pc.equal(column, value)
            mask = is_same if mask is None else pc.and_(mask, is_same)
        yield values, table.filter(mask)


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return the columns as Delta holds them: any of them may be null."""
    columns = [StructField(field.name, field.dataType) for field in schema.fields]
    return to_arrow_schema(StructType(columns), timezone="UTC")


def _add_action(file: dict[str, Any]) -> AddAction:
    return AddAction(
        path=file["path"],
        size=file["size_bytes"],
        partition_values=json.loads(file["partition_values"]),
        modification_time=SystemClock().now_ms(),
        data_change=True,
        stats=json.dumps({"numRecords": file["records"]}),
    )

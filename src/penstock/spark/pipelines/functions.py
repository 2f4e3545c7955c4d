"""Functions of users: on data frames, and on rows, where what they raise is a dead letter."""

import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import InvalidRequest
from penstock.pipelines import RECORD_COLUMNS, FrameStep, FunctionName, RowStep
from penstock.spark.pipelines.topics import ERROR, Decoded, columns_of

ERROR_CHARACTERS_MAX = 1000

Row = dict[str, Any]


def load_function(name: FunctionName, directory: Path) -> Callable[..., Any]:
    """Import a function; modules beside the file come before others of their name."""
    place = str(directory)
    if place not in sys.path:
        sys.path.insert(0, place)
    try:
        module = importlib.import_module(name.module)
    except ImportError as error:
        raise InvalidRequest(f"{name} cannot be imported: {error}") from None
    if _lies_in(module, directory):
        # Executors need not have the file: its functions travel with the query.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    function = getattr(module, name.function, None)
    if not callable(function):
        raise InvalidRequest(f"{name}: {module.__file__} has no function {name.function}")
    found: Callable[..., Any] = function
    return found


def transform_frames(
    step: FrameStep, frames: Mapping[str, DataFrame], directory: Path
) -> DataFrame:
    """Return the frame that a function makes of its inputs."""
    function = load_function(step.function, directory)
    try:
        made = function(*(frames[name] for name in step.inputs))
    except PySparkException:
        raise
    except Exception as error:
        # A sentence for the terminal; the trace of the user's code is its cause.
        text = f"{step.function} raised {type(error).__name__}: {error}"
        raise InvalidRequest(f"{text} ({_place_of(error)})") from error
    if not isinstance(made, DataFrame):
        raise InvalidRequest(f"{step.function} returned {type(made).__name__}, not a DataFrame")
    return made


def transform_rows(step: RowStep, frame: DataFrame, directory: Path) -> Decoded:
    """Return what a function makes of each row, and the rows for which it raised."""
    function = load_function(step.function, directory)
    schema = columns_of(step.schema)
    if "_value" not in frame.columns:
        # A row that came from no single record is its own value among the dead letters.
        frame = frame.withColumn("_value", F.to_json(F.struct("*")).cast("binary"))
    carried = [field for field in frame.schema.fields if field.name in RECORD_COLUMNS]
    made_schema = StructType([*schema.fields, *carried, StructField(ERROR, StringType())])
    call = RowCall(
        function=function,
        columns=tuple(schema.fieldNames()),
        carried=tuple(field.name for field in carried),
        schema=to_arrow_schema(made_schema, timezone="UTC"),
    )
    made = frame.mapInArrow(call, made_schema)
    rows = made.where(f"{ERROR} IS NULL").drop(ERROR)
    return Decoded(rows, made.where(f"{ERROR} IS NOT NULL").select(*call.carried, ERROR))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCall:
    """Calls a function for each row of record batches, in an executor.

    A function returns a mapping, an iterable of mappings, or None for no row. Keys that are no
    columns of the schema are left out, so that a function may return its row with more in it.
    """

    function: Callable[[Row], Any]
    columns: tuple[str, ...]
    carried: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were made, and one with the error for each row that failed."""
        for batch in batches:
            made = [each for row in batch.to_pylist() for each in self._call(row)]
            yield pa.RecordBatch.from_pylist(made, schema=self.schema)

    def _call(self, row: Row) -> list[Row]:
        record = {name: row[name] for name in self.carried}
        try:
            made = [{**self._columns_of(each), **record} for each in _several(self.function(row))]
            # A value that does not fit its column is found here, with the row that it belongs to.
            pa.RecordBatch.from_pylist(made, schema=self.schema)
        except Exception as error:  # noqa: BLE001 (whatever users' code raises is about one row)
            text = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]
            return [{**record, ERROR: text}]
        return made

    def _columns_of(self, made: Any) -> Row:
        if not isinstance(made, Mapping):
            raise TypeError(f"the function returned {type(made).__name__}, not a mapping")
        return {name: made.get(name) for name in self.columns}


def _several(made: Any) -> list[Any]:
    if made is None:
        return []
    return [made] if isinstance(made, Mapping) or not isinstance(made, Iterable) else list(made)


def _place_of(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename} line {frame.lineno}"


def _lies_in(module: ModuleType, directory: Path) -> bool:
    return module.__file__ is not None and Path(module.__file__).is_relative_to(directory)

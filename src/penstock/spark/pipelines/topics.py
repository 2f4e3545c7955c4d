"""Topics as views: the values decoded, the record beside them, and what could not be decoded.

A row carries its record in the columns of `RECORD_COLUMNS`. Decoding is Spark's own code; only the
wording of what is wrong is made here, and costs nothing for rows that are right.
"""

from dataclasses import dataclass
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from penstock.pipelines import RECORD_COLUMNS, TopicSource

ERROR = "_error"
_TEXT, _PARSED, _CORRUPT = "_text", "_parsed", "_corrupt"
_SHOWN_CHARACTERS_MAX = 100


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of a view, and its failures: the columns of a record and `_error`."""

    rows: DataFrame
    failures: DataFrame | None


def read_topics(session: SparkSession, source: TopicSource, bootstrap: str) -> Decoded:
    """Return a topic's view."""
    records = _records(session, source, bootstrap)
    match source.value:
        case "bytes":
            columns = (F.col("_key").alias("key"), F.col("_value").alias("value"))
            return Decoded(records.select(*columns, *RECORD_COLUMNS), None)
        case "text":
            return _as_text(records)
        case "json":
            assert source.schema is not None, "JSON has a schema"
            return _as_json(records, source.schema)


def columns_of(ddl: str) -> StructType:
    """Return the columns that a text lists; Spark's parser needs a session."""
    return cast("StructType", StructType.fromDDL(ddl))


def _records(session: SparkSession, source: TopicSource, bootstrap: str) -> DataFrame:
    reader = session.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    if source.pattern is not None:
        reader = reader.option("subscribePattern", source.pattern)
    else:
        reader = reader.option("subscribe", ",".join(source.topics))
    if source.start in ("earliest", "latest"):
        reader = reader.option("startingOffsets", source.start)
    else:
        reader = reader.option("startingTimestamp", source.start)
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    records = reader.options(**source.options).load()
    return records.select(*(F.col(name[1:]).alias(name) for name in RECORD_COLUMNS))


def _as_text(records: DataFrame) -> Decoded:
    is_text = F.is_valid_utf8(F.col("_value").cast("string"))
    error = F.when(~is_text, F.lit("the value is not text in UTF-8"))
    key, value = (F.col(f"_{name}").cast("string").alias(name) for name in ("key", "value"))
    marked = records.withColumn(ERROR, error)
    return Decoded(_right(marked).select(key, value, *RECORD_COLUMNS), _wrong(marked))


def _as_json(records: DataFrame, ddl: str) -> Decoded:
    schema = columns_of(ddl)
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    texts = records.withColumn(_TEXT, F.col("_value").cast("string"))
    parsed = texts.withColumn(_PARSED, F.from_json(_TEXT, with_corrupt, options))
    marked = parsed.withColumn(ERROR, _json_error(schema))
    columns = [F.col(f"{_PARSED}.{_quoted(name)}") for name in schema.fieldNames()]
    return Decoded(_right(marked).select(*columns, *RECORD_COLUMNS), _wrong(marked))


def _json_error(schema: StructType) -> Column:
    """Return what is wrong with a value, NULL when it fits its schema."""
    unfit = F.concat_ws("; ", *(_unfit(field) for field in schema.fields))
    missing = F.concat_ws("; ", *(_missing(field) for field in schema.fields if not field.nullable))
    shown = F.substring(_TEXT, 1, _SHOWN_CHARACTERS_MAX)
    is_corrupt = F.col(f"{_PARSED}.{_CORRUPT}").isNotNull()
    return (
        F.when(F.trim(_TEXT) == "", F.lit("the value is empty, not JSON"))
        .when(is_corrupt & (unfit != ""), unfit)
        .when(is_corrupt, F.concat(F.lit("the value is not JSON of the schema: "), shown))
        .when(missing != "", missing)
    )


def _unfit(field: StructField) -> Column:
    path = "$['" + field.name.replace("'", "\\'") + "']"
    found = F.get_json_object(F.col(_TEXT), path)
    says = F.substring(found, 1, _SHOWN_CHARACTERS_MAX)
    is_unfit = F.col(f"{_PARSED}.{_quoted(field.name)}").isNull() & found.isNotNull()
    kind = field.dataType.simpleString()
    return F.when(is_unfit, F.concat(F.lit(f"{field.name} is "), says, F.lit(f", not {kind}")))


def _missing(field: StructField) -> Column:
    is_missing = F.col(f"{_PARSED}.{_quoted(field.name)}").isNull()
    return F.when(is_missing, F.lit(f"{field.name} is missing"))


def _right(marked: DataFrame) -> DataFrame:
    return marked.where(F.col(ERROR).isNull())


def _wrong(marked: DataFrame) -> DataFrame:
    return marked.where(F.col(ERROR).isNotNull()).select(*RECORD_COLUMNS, ERROR)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

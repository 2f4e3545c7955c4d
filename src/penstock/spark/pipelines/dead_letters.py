"""Rows that failed, as records of the pipeline's dead-letter topic.

They carry the notes that dead letters of queues carry, so `penstock dlq` lists them, shows their
errors, and sends them back to the topic that they came from.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark.pipelines.sinks import headers_of
from penstock.spark.pipelines.topics import ERROR

REASON = "the pipeline could not use the row"
COUNT = "dead_letters"
# Rows that were joined or counted on the way came from no single record.
_NOWHERE = {
    "_topic": "''",
    "_partition": "-1",
    "_offset": "-1L",
    "_timestamp": "timestamp_millis(0)",
    "_key": "CAST(NULL AS BINARY)",
    "_value": "CAST(NULL AS BINARY)",
}


def dead_letters_of(failures: list[DataFrame], pipeline: str) -> DataFrame:
    """Return all failures as key, value and headers, counted as they pass."""
    letters = [_letters(frame, pipeline) for frame in failures]
    union = reduce(DataFrame.unionByName, letters)
    return union.observe(COUNT, F.count(F.lit(1)).alias("rows"))


def _letters(failures: DataFrame, pipeline: str) -> DataFrame:
    for name, kind in _NOWHERE.items():
        if name not in failures.columns:
            failures = failures.withColumn(name, F.expr(kind))
    headers = headers_of(
        {
            "penstock-dlq-topic": F.col("_topic"),
            "penstock-dlq-partition": F.col("_partition"),
            "penstock-dlq-offset": F.col("_offset"),
            "penstock-dlq-id": F.concat_ws("-", "_partition", "_offset"),
            "penstock-dlq-timestamp": F.unix_millis("_timestamp"),
            "penstock-dlq-group": F.lit(pipeline),
            "penstock-dlq-attempts": F.lit(1),
            "penstock-dlq-reason": F.lit(REASON),
            "penstock-dlq-error": F.col(ERROR),
        }
    )
    columns = (F.col("_key").alias("key"), F.col("_value").alias("value"), headers.alias("headers"))
    return failures.select(*columns)

"""How fast does Spark write to a topic, and how does that compare with a sink that drops all rows?

Both modes of the sink, one that drops what it gets, and Parquet write the same rows in turn, in one
session with two cores; the node runs on the same machine. Rows count when the commit has returned.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from benchmarks import discarding_sink
from benchmarks.answers import RATE, Measurement, Target
from benchmarks.workbench import Workbench, create_topic
from penstock.spark import open_session

_TOPIC = "spark-sink"
_PARTITIONS = 2
_RECORDS = 3_000_000
_VALUE_BYTES = 100


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Write everything once to warm up, then measure."""
    cloudpickle.register_pickle_by_value(discarding_sink)  # type: ignore[no-untyped-call]
    spark = open_session("benchmark", master="local[2]", settings={"spark.log.level": "ERROR"})
    spark.dataSource.register(discarding_sink.Discarded)
    count = bench.count(_RECORDS)
    directory = bench.directory / "rows"
    _rows(spark, count).write.parquet(str(directory))
    frame = spark.read.parquet(str(directory))
    with bench.node() as node:
        create_topic(node, _TOPIC, partitions=_PARTITIONS)
        options = {
            "kafka.bootstrap.servers": node.bootstrap,
            "url": f"http://127.0.0.1:{node.http_port}",
            "topic": _TOPIC,
        }
        seconds = _race(_writes(frame, options, bench.directory))
    for mode in ("exactly_once", "at_least_once"):
        figures = {
            RATE: count / seconds[mode],
            "of_discarded": seconds["discarded"] / seconds[mode],
            "of_parquet": seconds["parquet"] / seconds[mode],
        }
        yield Measurement(f"{mode}, {_VALUE_BYTES} B", figures, Target(RATE, least=300_000))


def _rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, numPartitions=_PARTITIONS).selectExpr(
        "binary(string(id)) AS key", f"binary(rpad(string(id), {_VALUE_BYTES}, 'x')) AS value"
    )


def _writes(
    frame: DataFrame, options: dict[str, str], directory: Path
) -> dict[str, Callable[[], None]]:
    topic = frame.write.format("penstock").mode("append").options(**options)
    return {
        "exactly_once": lambda: topic.option("mode", "exactly_once").save(),
        "at_least_once": lambda: topic.option("mode", "at_least_once").save(),
        "discarded": lambda: frame.write.format("discarded").mode("append").save(),
        "parquet": lambda: frame.write.mode("overwrite").parquet(str(directory / "written")),
    }


def _race(writes: dict[str, Callable[[], None]]) -> dict[str, float]:
    seconds = {}
    for _ in ("warm", "measured"):
        for name, write in writes.items():
            begin = time.perf_counter()
            write()
            seconds[name] = time.perf_counter() - begin
    return seconds

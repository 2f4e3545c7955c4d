"""How fast does Spark count a topic, and how does that compare with Parquet and plain Arrow files?

The three are counted in turn, in one session with two cores, on the same records; the node runs
on the same machine.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from benchmarks import arrow_source
from benchmarks.answers import RATE, Measurement, Target
from benchmarks.wire import WireClient, check_produced, produce_request
from benchmarks.workbench import Workbench, create_topic
from penstock.spark import open_session, read_range

_TOPIC = "spark"
_PARTITIONS = 2
_RECORDS_PER_BATCH = 1_000


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Count everything once to warm up, then measure."""
    cloudpickle.register_pickle_by_value(arrow_source)  # type: ignore[no-untyped-call]
    spark = open_session("benchmark", master="local[2]", settings={"spark.log.level": "ERROR"})
    spark.dataSource.register(arrow_source.ArrowFiles)
    cases = ((100, 6_000_000, Target(RATE, least=1_000_000)),
             (1024, 1_500_000, Target("mb_per_s", least=500)))  # fmt: skip
    for value_bytes, count, target in cases:
        count = bench.count(count) // (_PARTITIONS * _RECORDS_PER_BATCH)
        count *= _PARTITIONS * _RECORDS_PER_BATCH
        with bench.node() as node:
            create_topic(node, _TOPIC, partitions=_PARTITIONS)
            _fill(node.kafka_port, value_bytes, count)
            directory = bench.directory / f"files-{value_bytes}"
            _copy(node.bootstrap, count // _PARTITIONS, directory)
            seconds = _race(_frames(spark, node.bootstrap, directory), count)
        figures = {
            RATE: count / seconds["penstock"],
            "mb_per_s": count * value_bytes / seconds["penstock"] / 1e6,
            "of_arrow_files": seconds["arrow"] / seconds["penstock"],
            "of_parquet": seconds["parquet"] / seconds["penstock"],
        }
        yield Measurement(f"{value_bytes} B", figures, target)


def _fill(port: int, value_bytes: int, count: int) -> None:
    with WireClient(port) as client:
        for partition in range(_PARTITIONS):
            request = produce_request(
                _TOPIC, partition, records=_RECORDS_PER_BATCH, value_bytes=value_bytes
            )
            for _ in range(count // _PARTITIONS // _RECORDS_PER_BATCH):
                client.send(request)
                check_produced(_TOPIC, client.receive())


def _copy(bootstrap: str, count: int, directory: Path) -> None:
    """Write the same records as Arrow files and as Parquet."""
    for kind in ("arrow", "parquet"):
        (directory / kind).mkdir(parents=True)
    for partition in range(_PARTITIONS):
        batches = list(read_range(bootstrap, _TOPIC, partition, 0, count))
        table = pa.Table.from_batches(batches)
        path = str(directory / "arrow" / f"{partition}.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        pq.write_table(table, directory / "parquet" / f"{partition}.parquet")


def _frames(
    spark: SparkSession, bootstrap: str, directory: Path
) -> dict[str, Callable[[], DataFrame]]:
    topic = {"kafka.bootstrap.servers": bootstrap, "subscribe": _TOPIC}
    return {
        "penstock": lambda: spark.read.format("penstock").options(**topic).load(),
        "arrow": lambda: (
            spark.read.format("arrow-files").option("directory", f"{directory}/arrow").load()
        ),
        # A plain count would be answered from Parquet's footers.
        "parquet": lambda: spark.read.parquet(f"{directory}/parquet").where("length(value) > 0"),
    }


def _race(frames: dict[str, Callable[[], DataFrame]], count: int) -> dict[str, float]:
    seconds = {}
    for _ in ("warm", "measured"):
        for name, frame in frames.items():
            begin = time.perf_counter()
            counted = frame().count()
            seconds[name] = time.perf_counter() - begin
            assert counted == count, f"{name} counts {counted} of {count}"
    return seconds

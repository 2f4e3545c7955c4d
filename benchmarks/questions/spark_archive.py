"""How fast is a topic archived, and how does that compare with Spark reading the archive's files?

A run archives all that is there, from the first fetch to the commit and the report to the cluster,
in one session with two cores; the node runs on the same machine. Then Spark counts the same records
from the Parquet files that were written, which are on the disk and not in memory by then. Values
are text of which half can be compressed away.
"""

import time
from collections.abc import Iterator
from itertools import cycle, islice
from random import Random

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.answers import RATE, Measurement, Target
from benchmarks.wire import WireClient, check_produced, produce_values_request
from benchmarks.workbench import Workbench
from penstock.client import Client
from penstock.spark import ArchiveService, ArchiveServiceSettings, open_session
from tests.processes import NodeProcess

_PARTITIONS = 2
_RECORDS_PER_BATCH = 1_000
# More than a compressor looks back.
_BATCHES_THAT_DIFFER = 32


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Archive a little to warm up, then measure."""
    spark = open_session("benchmark", master="local[2]", settings={"spark.log.level": "ERROR"})
    cases = ((100, 6_000_000, Target(RATE, least=1_000_000)),
             (1024, 6_000_000, Target("mb_per_s", least=300)))  # fmt: skip
    for value_bytes, count, target in cases:
        batches = bench.count(count) // (_PARTITIONS * _RECORDS_PER_BATCH)
        count = batches * _PARTITIONS * _RECORDS_PER_BATCH
        # The log, the archive and some more.
        touched_bytes = 3 * count * value_bytes // 2
        with bench.node(touched_bytes=touched_bytes) as node:
            for topic, number in (("warm", 1), ("measured", batches)):
                path = str(bench.directory / f"archive-{topic}-{value_bytes}")
                _fill(node, topic, path, value_bytes, number)
                archive_s = _archive(spark, node, topic)
                parquet_s = _count(spark, path, number * _PARTITIONS * _RECORDS_PER_BATCH)
        figures = {
            RATE: count / archive_s,
            "mb_per_s": count * value_bytes / archive_s / 1e6,
            "of_parquet": parquet_s / archive_s,
        }
        yield Measurement(f"{value_bytes} B", figures, target)


def _fill(node: NodeProcess, topic: str, path: str, value_bytes: int, batches: int) -> None:
    with Client(node.http_url) as client:
        client.create_topic(topic, partitions=_PARTITIONS, settings={"archive.path": path})
    random = Random(1)
    with WireClient(node.kafka_port) as wire:
        for partition in range(_PARTITIONS):
            requests = [
                produce_values_request(
                    topic,
                    partition,
                    [
                        random.randbytes(value_bytes // 2).hex().encode()
                        for _ in range(_RECORDS_PER_BATCH)
                    ],
                )
                for _ in range(min(batches, _BATCHES_THAT_DIFFER))
            ]
            for request in islice(cycle(requests), batches):
                wire.send(request)
                check_produced(topic, wire.receive())


def _archive(spark: SparkSession, node: NodeProcess, topic: str) -> float:
    settings = ArchiveServiceSettings(bootstrap=node.bootstrap, url=node.http_url, topics=(topic,))
    begin = time.perf_counter()
    (status,) = ArchiveService(spark, settings).run_once()
    seconds = time.perf_counter() - begin
    assert status.lag == 0, f"{status.lag} records of {topic} were not archived"
    return seconds


def _count(spark: SparkSession, path: str, count: int) -> float:
    begin = time.perf_counter()
    # Files that were put together into larger ones still lie beside them.
    files = DeltaTable(path).file_uris()
    # A plain count would be answered from Parquet's footers.
    counted = spark.read.parquet(*files).where("length(value) > 0").count()
    assert counted == count, f"{counted} of {count} records are in the files"
    return time.perf_counter() - begin

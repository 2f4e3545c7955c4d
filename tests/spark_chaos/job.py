"""The driver's program: copies and archives a topic until a file says that all has been sent.

`python -m tests.spark_chaos.job BOOTSTRAP URLS DIRECTORY`; the checkpoint is in the directory.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark import ArchiveService, ArchiveServiceSettings, open_session

SOURCE = "chaos-in"
TARGET = "chaos-out"
FINISH = "finish"
# Two executors with one core each, as processes of their own.
MASTER = "local-cluster[2,1,512]"
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # Executors are killed more often than a cluster would tolerate by default.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "20",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_ARCHIVE_EVERY_S = 1.0


def main() -> None:
    """Copy and archive until told to finish, then until nothing is left."""
    bootstrap, urls, directory = sys.argv[1:]
    spark = open_session("spark-chaos", master=MASTER, settings=SETTINGS)
    query = _copy(spark, bootstrap, urls, Path(directory))
    archive = ArchiveService(
        spark,
        ArchiveServiceSettings(
            bootstrap=bootstrap, url=urls.split(","), topics=(SOURCE,), every_s=_ARCHIVE_EVERY_S
        ),
    )
    finish = Path(directory) / FINISH
    archive.run(lambda: finish.exists() or not query.isActive)
    # Raises where the query has failed.
    query.processAllAvailable()
    query.stop()
    archive.run_once()
    spark.stop()


def _copy(spark: SparkSession, bootstrap: str, urls: str, directory: Path) -> StreamingQuery:
    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "2000")
        .load()
    )
    return (
        records.select("key", "value")
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("url", urls)
        .option("topic", TARGET)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )


if __name__ == "__main__":
    main()

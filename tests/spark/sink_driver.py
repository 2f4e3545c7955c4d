"""A streaming query from topic to topic as a process of its own, to be killed by tests.

Each epoch's rows carry the run that made them: run again, an epoch has other rows.
"""

import sys
import uuid

from penstock.spark import open_session


def main() -> None:
    """Copy one topic into another until all is copied; the arguments say where."""
    bootstrap, url, source, target, checkpoint = sys.argv[1:]
    settings = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    spark = open_session("sink-driver", master="local[2]", settings=settings)
    stream = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500)
        .load()
    )
    run = uuid.uuid4().hex
    query = (
        stream.selectExpr("value AS key", f"concat(string(value), '.{run}') AS value")
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("url", url)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()

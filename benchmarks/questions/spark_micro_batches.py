"""How long does a micro-batch take while records keep coming?"""

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Producer

from benchmarks.answers import Measurement, Target
from benchmarks.workbench import Workbench, create_topic
from penstock.spark import open_session

_TOPIC = "micro"
_PER_S = 1_000
_FIRST_BATCHES_LEFT_OUT = 10


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Publish 1,000 records/s and look at the batches that held some."""
    spark = open_session("benchmark", master="local[2]", settings={"spark.log.level": "ERROR"})
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    with bench.node() as node, tempfile.TemporaryDirectory() as checkpoint:
        create_topic(node, _TOPIC)
        stream = (
            spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", node.bootstrap)
            .option("subscribe", _TOPIC)
            .load()
        )
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
        stopping = threading.Event()
        publisher = threading.Thread(target=_publish, args=(node.bootstrap, stopping))
        publisher.start()
        query = writer.start()
        time.sleep(bench.seconds(60))
        query.stop()
        stopping.set()
        publisher.join()
        batches = [each for each in query.recentProgress if each.numInputRows]
    durations = [each.durationMs["triggerExecution"] for each in batches[_FIRST_BATCHES_LEFT_OUT:]]
    figures = {
        "p50_ms": statistics.median(durations),
        "p90_ms": statistics.quantiles(durations, n=10)[-1],
        "batches": float(len(durations)),
    }
    yield Measurement(f"{_PER_S:,} records/s", figures, Target("p50_ms", most=200))


def _publish(bootstrap: str, stopping: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    while not stopping.wait(0.01):
        for _ in range(_PER_S // 100):
            producer.produce(_TOPIC, b"x" * 100)
        producer.poll(0)
    producer.flush(30)

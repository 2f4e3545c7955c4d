"""Ask a topic in SQL: `python examples/spark_views.py TOPIC [HOST:PORT]`.

Counts the records of a topic per partition and shows the newest record of each key, which is what
a compacted topic would hold.
"""

import sys

from penstock.spark import open_session

TOPIC = sys.argv[1]
BOOTSTRAP = sys.argv[2] if len(sys.argv) > 2 else "localhost:9092"

VIEW = f"""
CREATE TEMPORARY VIEW records USING penstock OPTIONS (
    'kafka.bootstrap.servers' '{BOOTSTRAP}',
    subscribe '{TOPIC}'
)
"""
PER_PARTITION = """
SELECT partition, count(*) AS records, min(offset) AS first, max(offset) AS last
FROM records GROUP BY partition ORDER BY partition
"""
NEWEST = """
SELECT string(key) AS key, string(max_by(value, offset)) AS value
FROM records WHERE key IS NOT NULL GROUP BY key ORDER BY key
"""


def main() -> None:
    """Print both answers."""
    spark = open_session("penstock-views", settings={"spark.log.level": "ERROR"})
    spark.sql(VIEW)
    for row in spark.sql(PER_PARTITION).collect():
        print(f"partition {row.partition}: {row.records} records, {row.first} to {row.last}")
    for row in spark.sql(NEWEST).collect():
        print(f"{row.key}: {row.value}")
    spark.stop()


if __name__ == "__main__":
    main()

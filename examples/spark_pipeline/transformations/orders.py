"""A topic becomes a table that grows, and a summary of it that is computed anew with each run."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

spark = SparkSession.active()
BOOTSTRAP = spark.conf.get("spark.orders.bootstrap", "localhost:9092")
TOPIC = spark.conf.get("spark.orders.topic", "orders")


@dp.table
def orders() -> DataFrame:
    """Every order, once, with its place in the topic."""
    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("groupId", "orders-pipeline")
        .load()
    )
    order = from_json(col("value").cast("string"), "number int, customer string")
    return records.select("partition", "offset", "timestamp", order.alias("order")).select(
        "partition", "offset", "timestamp", "order.*"
    )


@dp.materialized_view
def orders_per_customer() -> DataFrame:
    """How many orders each customer has sent."""
    return spark.read.table("orders").groupBy("customer").count()

"""Reports about traffic and deliveries, from a node that has had both."""

import time
from dataclasses import replace

from pyspark.sql import SparkSession

from penstock.client import Admin, Client, Connection, Groups, Publication
from penstock.ids import TopicPartition
from penstock.spark import (
    Scope,
    deliveries_report,
    hot_keys_report,
    latency_report,
    traffic_report,
)
from tests.kafka_clients import DEADLINE_S, new_producer, new_topic, unique, wait_until
from tests.processes import NodeProcess

START_MS = 1_700_000_000_000


def test_hot_partitions_and_keys_are_found(spark: SparkSession, node: NodeProcess) -> None:
    topic = new_topic(node, partitions=5)
    producer = new_producer(node)
    for number in range(50):
        producer.produce(topic, b"12345", b"hot", partition=3, timestamp=START_MS + number * 100)
    for number in range(4):
        key = f"k{number}".encode()
        producer.produce(topic, b"1", key, partition=number, timestamp=START_MS + 5000)
    assert producer.flush(DEADLINE_S) == 0
    scope = Scope(topics=(topic,), bootstrap=node.bootstrap, url=node.http_url)

    traffic = traffic_report(spark, scope)
    keys = hot_keys_report(spark, scope)

    partitions = traffic.as_json()["tables"]["partitions"]
    assert [row["records"] for row in partitions] == [1, 1, 1, 51, 0]
    assert partitions[3]["bytes"] == 50 * 8 + 3
    assert traffic.tables[0].marked == {3}
    assert traffic.notes == [f"{topic} partition 3 has 4.7 times the mean rate of its topic."]
    first, second = keys.as_json()["tables"]["keys"][:2]
    assert (first["key"], first["records"], first["partition"]) == ("hot", 50, 3)
    assert (second["key"], second["records"]) == ("k0", 1)
    assert keys.tables[0].marked == {0}


def test_latency_retries_reasons_and_lag_are_found(spark: SparkSession, node: NodeProcess) -> None:
    topic, group = unique("orders"), "billing"
    with Client(node.http_url) as client:
        before_ms = int(time.time() * 1000)
        client.publish_batch(topic, [Publication(value=b"x") for _ in range(10)])
        messages = client.receive(topic, group, wait_s=10, count_max=8, lease_s=3600)
        client.ack_batch(messages[:5])
        client.nack(messages[5], delay_s=0, reason="busy")
        client.reject(messages[6], reason="broken")
        again = client.receive(topic, group, wait_s=10, count_max=1, lease_s=3600)
        client.ack_batch(again)
        wait_until(lambda: client.dead_letters.search(topic) != [], "the dead letter is there")
    took_ms = int(time.time() * 1000) - before_ms
    scope = Scope(topics=(topic,), bootstrap=node.bootstrap, url=node.http_url)
    Groups(Admin(Connection(node.bootstrap))).commit("readers", {TopicPartition(topic, 0): 4})

    deliveries = deliveries_report(spark, scope).as_json()["tables"]
    bounded = deliveries_report(spark, replace(scope, start_ms=before_ms)).as_json()["tables"]
    later = deliveries_report(spark, replace(scope, start_ms=before_ms + 3_600_000))
    latency = latency_report(spark, scope).as_json()["tables"]
    nothing = latency_report(spark, Scope(
        topics=(topic,), bootstrap=node.bootstrap, url=node.http_url, end_ms=START_MS
    ))  # fmt: skip

    (row,) = deliveries["groups"]
    assert (row["group"], row["acked"], row["returned"], row["rejected"]) == (group, 6, 1, 1)
    assert (row["dead-lettered"], row["lag"]) == (1, 3)
    reasons = {(row["kind"], row["reason"]) for row in deliveries["reasons"]}
    assert reasons == {("returned", "busy"), ("rejected", "broken"), ("dead-lettered", "broken")}
    assert bounded == deliveries
    (row,) = deliveries["consumer_groups"]
    assert (row["group"], row["lag"], row["partitions"]) == ("readers", 10 - 4, 1)
    assert [table.name for table in later.tables] == ["consumer_groups"]
    (row,) = latency["groups"]
    assert row["acks"] == 6
    assert 0 <= row["p50"] <= row["max"] <= took_ms
    assert nothing.tables == ()
    assert "No message" in nothing.notes[0]

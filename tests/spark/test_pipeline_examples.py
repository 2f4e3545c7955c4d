"""The pipelines in examples/pipelines do what they say."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.client import Client
from penstock.pipelines import Pipeline, load_pipeline
from penstock.spark import ClusterAddress, run_pipeline
from tests.kafka_clients import publish, read_from
from tests.processes import NodeProcess

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
FILES = sorted(path.stem for path in EXAMPLES.glob("*.yml"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(copytree(EXAMPLES, tmp_path / "examples"))


def example(directory: Path, name: str) -> Pipeline:
    """Return an example that ends when it has read what is there."""
    assert name in FILES
    return replace(load_pipeline(directory / f"{name}.yml"), trigger_ms=None)


def lines(*values: Mapping[str, object]) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def at(minute: int, second: int = 0) -> str:
    return f"2025-01-31T12:{minute:02}:{second:02}Z"


def order(number: int, customer: str, amount: float, *, minute: int) -> dict[str, object]:
    return {"id": number, "customer": customer, "amount": amount, "at": at(minute)}


def test_orders_become_totals_per_minute_and_payments_find_their_orders(
    spark: SparkSession, node: NodeProcess, directory: Path
) -> None:
    cluster = ClusterAddress(node.bootstrap, node.http_url)
    orders = [
        order(1, "anna", 2.5, minute=0),
        order(2, "bert", 1.0, minute=0),
        order(3, "anna", 4.0, minute=0),
        order(4, "anna", 7.0, minute=1),
        order(5, "anna", 1.0, minute=9),
    ]
    publish(node, "orders", lines(*orders))
    payments = [
        {"order_id": 3, "method": "card", "paid_at": at(5)},
        {"order_id": 4, "method": "cash", "paid_at": "2025-01-31T15:00:00Z"},
    ]
    publish(node, "payments", [*lines(*payments), b"?"])

    run_pipeline(spark, example(directory, "order_totals"), cluster=cluster)
    paid = run_pipeline(spark, example(directory, "paid_orders"), cluster=cluster)

    totals = [json.loads(each.value()) for each in read_from(node, "order-totals", 3)]
    assert {(each["customer"], each["minute"], each["total"]) for each in totals} == {
        ("anna", "2025-01-31T12:00:00.000Z", 6.5),
        ("bert", "2025-01-31T12:00:00.000Z", 1.0),
        ("anna", "2025-01-31T12:01:00.000Z", 7.0),
    }
    (record,) = read_from(node, "paid-orders", 1)
    assert record.key() == b"3"
    assert json.loads(record.value())["method"] == "card"
    assert paid.dead_letters == 1


def test_clicks_become_sessions_and_a_micro_batch_is_added_once(
    spark: SparkSession, node: NodeProcess, directory: Path
) -> None:
    cluster = ClusterAddress(node.bootstrap, node.http_url)
    clicks = [
        f"{at(0)} anna /", f"{at(1)} anna /a", f"{at(2)} crawlbot /", f"{at(30)} anna /",
        "nonsense", "2025-02-01T12:00:00Z bert /",
    ]  # fmt: skip
    publish(node, "clicks", [line.encode() for line in clicks])
    pipeline = example(directory, "click_sessions")

    done = run_pipeline(spark, pipeline, cluster=cluster)
    # The table has the last micro-batch; Spark has lost its note that it was done.
    commits = Path(pipeline.checkpoint, "table", "commits")
    newest = max((path for path in commits.iterdir() if path.name.isdecimal()), key=_number)
    newest.unlink()
    run_pipeline(spark, pipeline, cluster=cluster)

    table = DeltaTable(directory / "sessions")
    rows = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: str(row["began"]))
    assert [(row["user"], row["clicks"], sorted(row["pages"])) for row in rows] == [
        ("anna", 2, ["/", "/a"]),
        ("anna", 1, ["/"]),
    ]
    assert table.metadata().partition_columns == ["date"]
    assert done.dead_letters == 1
    with Client(node.http_url) as client:
        (letter,) = client.dead_letters.search("click-sessions.dlq")
    assert letter.error == "ValueError: 'nonsense' is not a click"


def _number(path: Path) -> int:
    return int(path.name)

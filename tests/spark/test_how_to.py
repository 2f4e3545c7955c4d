"""The page about Spark can be followed from top to bottom."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.blocks import ROOT, blocks_of
from tests.processes import NodeProcess


@pytest.mark.usefixtures("spark")
def test_the_page_about_spark_can_be_followed(
    node: NodeProcess, spark: SparkSession, tmp_path: Path
) -> None:
    page = ROOT / "docs" / "how-to" / "spark.md"
    text = "".join(block.text for block in blocks_of(page) if block.language == "python")
    text = text.replace("localhost:9092", node.bootstrap)
    for name in ("orders-checkpoint", "orders"):
        text = text.replace(f'"{name}"', f'"{tmp_path / name}"')

    exec(compile(text, str(page), "exec"), {})

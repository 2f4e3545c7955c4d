"""One Spark session for all tests of this room, and a running node for each file."""

import shutil
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming import DataStreamReader

from penstock.spark import open_session
from tests.processes import NodeProcess


@pytest.fixture(scope="session")
def java() -> None:
    """Skip what cannot run here."""
    if shutil.which("java") is None:
        pytest.skip("there is no Java: Spark needs 17 or newer")


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests share."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = open_session(
        "penstock-tests",
        master="local[2]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            # Tests end before the better one of Java's compilers has paid for itself.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node of its own for each test file."""
    with NodeProcess(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def reading(spark: SparkSession, node: NodeProcess) -> Callable[..., DataFrameReader]:
    """Start a batch read; underscores in option names stand for dots."""

    def read(**options: object) -> DataFrameReader:
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", node.bootstrap)
        return reader.options(**_dotted(options))

    return read


@pytest.fixture
def streaming(spark: SparkSession, node: NodeProcess) -> Callable[..., DataStreamReader]:
    """Start a streaming read; underscores in option names stand for dots."""

    def read(**options: object) -> DataStreamReader:
        reader = spark.readStream.format("penstock")
        reader = reader.option("kafka.bootstrap.servers", node.bootstrap)
        return reader.options(**_dotted(options))

    return read


def _dotted(options: dict[str, object]) -> dict[str, str]:
    return {name.replace("_", "."): str(value) for name, value in options.items()}

"""The pages about Spark can be followed from top to bottom."""

import shlex
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from tests.docs.blocks import ROOT, Block, Reader, blocks_of
from tests.processes import NodeProcess


@pytest.mark.usefixtures("spark")
def test_the_page_about_spark_can_be_followed(
    node: NodeProcess, spark: SparkSession, tmp_path: Path
) -> None:
    page = ROOT / "docs" / "how-to" / "spark.md"
    text = "".join(block.text for block in blocks_of(page) if block.language == "python")
    text = text.replace("localhost:9092", node.bootstrap)
    text = text.replace("http://localhost:8080", node.http_url)
    for name in ("orders-checkpoint", "orders", "totals-checkpoint"):
        text = text.replace(f'"{name}"', f'"{tmp_path / name}"')

    exec(compile(text, str(page), "exec"), {})


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("name", ["insight", "pipelines"])
def test_a_page_about_commands_on_spark_can_be_followed(name: str, tmp_path: Path) -> None:
    quick = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    java_home = {"JAVA_HOME": str(Path(str(shutil.which("java"))).resolve().parents[1])}
    with NodeProcess(tmp_path) as node:
        reader = Reader(node, wait_s=800, environ={**quick, **java_home})
        for block in blocks_of(ROOT / "docs" / "how-to" / f"{name}.md"):
            reader.follow(block)


@pytest.mark.usefixtures("spark")
def test_the_page_about_archives_can_be_followed(
    node: NodeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "how-to" / "archive.md"
    monkeypatch.chdir(node.directory)
    monkeypatch.setattr(SparkSession, "stop", lambda _session: None)
    reader = Reader(node)

    for block in blocks_of(page):
        if block.language == "python":
            exec(compile(block.text.replace("localhost:9092", node.bootstrap), str(page), "exec"))
            continue
        if block.language == "sh":
            for line in block.text.splitlines():
                if line.startswith(("penstock archive run", "penstock replay")):
                    run_here(node, line)
                else:
                    reader.follow(Block("sh", line, block.line))
            continue
        reader.follow(block)


def run_here(node: NodeProcess, line: str) -> None:
    """Run a command in this process, where the session is that of all tests."""
    environ = {"PENSTOCK_BOOTSTRAP": node.bootstrap, "PENSTOCK_URL": node.http_url}
    done = CliRunner().invoke(app, shlex.split(line)[1:], env=environ, catch_exceptions=False)
    assert done.exit_code == 0, done.output

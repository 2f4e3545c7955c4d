"""How far pipelines are, and that one is not run twice at once."""

from pathlib import Path

import pytest

from penstock.errors import Conflict
from penstock.pipelines import load_pipeline, pipeline_states, query_path, running

TEXT = """\
name: copy
checkpoint: state
sources: {orders: {topic: orders}}
sinks: {files: {from: orders, parquet: out}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "copy.yml").write_text(TEXT)
    (tmp_path / "penstock.yml").write_text("node_id: 1\n")
    return tmp_path / "copy.yml"


def test_a_pipeline_is_new_until_it_has_a_checkpoint(file: Path) -> None:
    (state,) = pipeline_states(file.parent)

    assert (state.name, state.state) == ("copy", "new")


def test_the_last_epoch_is_the_last_that_is_committed(file: Path) -> None:
    checkpoint = Path(query_path(load_pipeline(file), "files"))
    for kind, epochs in (("offsets", 12), ("commits", 11)):
        (checkpoint / kind).mkdir(parents=True)
        for epoch in range(epochs):
            (checkpoint / kind / str(epoch)).touch()
        (checkpoint / kind / f".{epochs}.crc").touch()

    (state,) = pipeline_states(file.parent)

    assert state.state == "stopped"
    assert (state.queries[0].last_epoch, state.queries[0].has_begun_next) == (10, True)


def test_a_pipeline_runs_once_at_a_time(file: Path) -> None:
    pipeline = load_pipeline(file)

    with running(pipeline):
        assert pipeline_states(file.parent)[0].state == "running"
        with pytest.raises(Conflict, match="copy is running already"), running(pipeline):
            pass

    with running(pipeline):
        pass


def test_a_file_with_mistakes_is_listed_with_them(file: Path) -> None:
    file.write_text(TEXT.replace("from: orders", "from: nothing"))

    (state,) = pipeline_states(file.parent)

    assert (state.state, len(state.problems)) == ("invalid", 1)

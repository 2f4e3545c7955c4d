"""How a command tells what went wrong."""

import json

import pytest

from penstock.cli.exits import report
from penstock.client.retries import Unreached
from penstock.errors import PenstockError, TopicNotFound


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Unreached("nobody"), "Unavailable"), (TopicNotFound("no such topic"), "TopicNotFound")],
)
def test_programs_are_told_a_kind_of_error_that_is_documented(
    error: PenstockError, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report(error, as_json=True)

    told = json.loads(capsys.readouterr().err)["error"]
    assert told == {"type": kind, "message": str(error), "retryable": error.retryable}

"""What must not lie about in the repository."""

import re

from tests.architecture.sources import shown, texts

# Spelled in two halves, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MACHINE_PATH = re.compile(r"/(home|Users|root|work)/\w")


def test_nothing_is_left_for_later() -> None:
    found = [shown(path) for path in texts() if UNFINISHED.search(path.read_text())]

    assert found == []


def test_no_file_knows_the_machine_that_it_was_written_on() -> None:
    found = [shown(path) for path in texts() if MACHINE_PATH.search(path.read_text())]

    assert found == []

"""The reference in git says what the code says; `python -m tests.docs.generate` writes it."""

import re

import pytest

from tests.docs.generate import PAGES, REFERENCE

EMPTY_NAME = re.compile(r"^\|\s*\|", re.MULTILINE)
INSIDE = re.compile(r"<class |<function |<object |\bNone\b|inspect\.")


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_in_step_with_the_code(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "python -m tests.docs.generate"


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_names_every_row_and_shows_nothing_of_the_inside(name: str) -> None:
    page = (REFERENCE / name).read_text()

    assert EMPTY_NAME.findall(page) == []
    assert INSIDE.findall(page) == []

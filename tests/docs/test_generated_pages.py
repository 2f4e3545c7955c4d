"""The reference in git says what the code says; `python -m tests.docs.generate` writes it."""

import pytest

from tests.docs.generate import PAGES, REFERENCE


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_in_step_with_the_code(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "python -m tests.docs.generate"

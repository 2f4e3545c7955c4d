"""Each room says at its door what it keeps, what it promises and what it leaves to others."""

import ast
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, modules, name_of, rooms, tree

# Holds nothing but the doors, each of which has its own paragraph.
CORRIDOR = PACKAGE / "protocols"


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_a_room_opens_with_a_paragraph(room: Path) -> None:
    text = ast.get_docstring(tree(room / "__init__.py")) or ""
    _, _, paragraph = text.partition("\n\n")

    assert text, f"{room.name} has no paragraph at its door"
    assert room == CORRIDOR or paragraph.count(".") >= 2, "a title is not a paragraph"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_says_what_it_is(path: Path) -> None:
    assert path.read_text() == "" or ast.get_docstring(tree(path))

"""What pages point to is there: files, headings, tests, options, dependencies."""

import re
import tomllib
from pathlib import Path

import pytest

from penstock.config import OPTIONS
from tests.docs.blocks import ROOT, blocks_of

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
SOURCE = re.compile(r"`((?:src/penstock|benchmarks|examples)/[\w/.]+)`")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_and_sources_that_are_named_exist(page: Path) -> None:
    text = page.read_text()

    for path, test in TEST.findall(text):
        assert (ROOT / path).is_file(), path
        assert not test or f"def {test}(" in (ROOT / path).read_text(), f"{path}::{test}"
    for path in SOURCE.findall(text):
        assert (ROOT / path).exists(), path


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}

    assert [name_of(page) for page in (ROOT / "docs").rglob("*.md") if page != index] == [
        name_of(page) for page in (ROOT / "docs").rglob("*.md") if page.resolve() in listed
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_that_a_unit_file_gives_exist(page: Path) -> None:
    flags = {option.flag for option in OPTIONS.values()} | {"--config"}
    for block in blocks_of(page):
        if block.language == "ini":
            given = re.findall(r"(?<=\s)--[\w-]+", block.text)
            assert set(given) <= flags


def test_the_reason_for_every_dependency_is_told() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    names = {re.split(r"[<>=]", each)[0] for each in needed}
    _, _, section = (ROOT / "ARCHITECTURE.md").read_text().partition("## Dependencies")
    told = set(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE))

    assert names <= told, f"not told: {names - told}"
    assert told - names == set(), "told, but not there"

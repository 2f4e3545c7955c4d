"""Every command and every snippet of README and docs is run."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, RUNNABLE, SHOWN_ONLY, Reader, blocks_of
from tests.processes import NodeProcess

PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Followed in tests/spark, which knows how long Java may take.
SPARK_PAGES = [
    ROOT / "docs" / "how-to" / f"{name}.md"
    for name in ("archive", "insight", "pipelines", "reshard", "spark")
]
PAGES_THAT_RUN = [
    page
    for page in PAGES
    if page not in SPARK_PAGES and any(block.language in RUNNABLE for block in blocks_of(page))
]
PAGES_AT_ONCE = 4


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Future[None]]]:
    """All pages on their way at once; most of the time goes into starting programs."""
    with ThreadPoolExecutor(PAGES_AT_ONCE) as pool:
        yield {
            page: pool.submit(follow, page, tmp_path_factory.mktemp("page"))
            # The longest one decides how long it all takes, so it goes first.
            for page in sorted(PAGES_THAT_RUN, key=lambda page: -len(blocks_of(page)))
        }


def follow(page: Path, directory: Path) -> None:
    with NodeProcess(directory) as node:
        reader = Reader(node)
        for block in blocks_of(page):
            try:
                reader.follow(block)
            except Exception as error:
                raise AssertionError(f"{name_of(page)}, line {block.line}: {error}") from error


@pytest.mark.parametrize("page", PAGES_THAT_RUN, ids=name_of)
def test_a_page_can_be_followed_from_top_to_bottom(
    page: Path, followed: dict[Path, Future[None]]
) -> None:
    followed[page].result()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert page.read_text().count("```") == 2 * len(blocks_of(page))
    assert {block.language for block in blocks_of(page)} <= RUNNABLE | SHOWN_ONLY

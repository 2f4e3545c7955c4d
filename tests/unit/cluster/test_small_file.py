"""Small files come back as they were written, or not at all."""

from pathlib import Path

import pytest

from penstock.cluster.small_file import put_small_file, read_small_file
from penstock.errors import Corruption
from penstock.testing import SimDisk

PATH = Path("/data/small")
CONTENT = b"who I am"


def written() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(PATH.parent)
    put_small_file(disk, PATH, CONTENT)
    return disk


def test_what_was_written_is_read() -> None:
    assert read_small_file(written(), PATH) == CONTENT


@pytest.mark.parametrize("position", range(len(CONTENT)))
def test_a_bit_that_has_changed_in_the_content_is_noticed(position: int) -> None:
    disk = written()

    disk.flip_bit(PATH, position, 3)

    with pytest.raises(Corruption, match="/data/small is damaged"):
        read_small_file(disk, PATH)


@pytest.mark.parametrize("position", range(len(CONTENT), len(CONTENT) + 17))
def test_a_bit_that_has_changed_behind_the_content_does_not_pass_for_it(position: int) -> None:
    disk = written()

    disk.flip_bit(PATH, position, 3)

    try:
        found = read_small_file(disk, PATH)
    except Corruption:
        return
    # Whoever reads it finds more than was written.
    assert len(found) > len(CONTENT)


def test_a_file_without_a_checksum_is_taken_as_it_is() -> None:
    disk = written()
    disk.put(PATH, CONTENT)

    assert read_small_file(disk, PATH) == CONTENT

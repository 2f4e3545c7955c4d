"""The contract of the real and the simulated disk, and the faults of the latter."""

import errno
from pathlib import Path
from random import Random

import pytest

from penstock.log import Disk, DiskFile, LocalDisk
from penstock.testing import MachineStopped, SimDisk


@pytest.fixture(params=["local", "sim"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return LocalDisk() if request.param == "local" else SimDisk()


@pytest.fixture
def directory(disk: Disk, tmp_path: Path) -> Path:
    path = tmp_path / "a" / "b"
    disk.make_directory(path)
    return path


def file_with(disk: Disk, path: Path, content: bytes) -> DiskFile:
    file = disk.create(path)
    file.write_at(0, [content])
    return file


# What both promise.


def test_bytes_are_read_back_from_where_they_were_written(disk: Disk, directory: Path) -> None:
    file = disk.create(directory / "f")

    file.write_at(0, [b"abc", bytearray(b"de"), memoryview(b"f")])
    file.write_at(3, [b"XY"])

    assert file.read_at(0, 100) == b"abcXYf"
    assert file.read_at(2, 2) == b"cX"
    assert file.read_at(6, 5) == b""
    assert file.read_at(100, 5) == b""
    assert file.size() == 6


def test_a_write_of_more_buffers_than_the_system_takes_at_once_is_whole(
    disk: Disk, directory: Path
) -> None:
    file = disk.create(directory / "f")
    buffers = [bytes([number % 256]) * (number % 7) for number in range(3_000)]

    file.write_at(5, buffers)

    assert file.read_at(0, 1 << 20) == bytes(5) + b"".join(buffers)


def test_a_gap_reads_as_zeros(disk: Disk, directory: Path) -> None:
    file = disk.create(directory / "f")

    file.write_at(4, [b"x"])

    assert file.read_at(0, 9) == b"\0\0\0\0x"


def test_writing_nothing_does_not_grow_the_file(disk: Disk, directory: Path) -> None:
    file = disk.create(directory / "f")

    file.write_at(10, [b""])

    assert file.size() == 0


def test_truncation_cuts_and_grows(disk: Disk, directory: Path) -> None:
    file = file_with(disk, directory / "f", b"abcdef")

    file.truncate(2)
    file.truncate(4)
    file.sync()

    assert file.read_at(0, 9) == b"ab\0\0"


def test_a_view_shows_the_whole_file_and_cannot_be_written(disk: Disk, directory: Path) -> None:
    file = file_with(disk, directory / "f", b"abc")

    view = file.view()

    assert bytes(view) == b"abc"
    assert memoryview(view).readonly
    assert len(disk.create(directory / "empty").view()) == 0


def test_a_file_can_grow_while_a_view_of_it_is_held(disk: Disk, directory: Path) -> None:
    file = file_with(disk, directory / "f", b"abc")
    view = file.view()

    file.write_at(3, [b"def"])

    assert bytes(view) == b"abc"
    assert file.read_at(0, 9) == b"abcdef"


def test_a_view_shows_what_is_written_in_its_place(disk: Disk, directory: Path) -> None:
    file = file_with(disk, directory / "f", b"abc")
    view = file.view()

    file.write_at(1, [b"x"])

    assert bytes(view) == b"axc"


def test_opening_finds_what_was_written_and_creating_empties_it(
    disk: Disk, directory: Path
) -> None:
    file_with(disk, directory / "f", b"abc")

    assert disk.open(directory / "f").read_at(0, 9) == b"abc"
    assert disk.create(directory / "f").size() == 0
    assert disk.open(directory / "f").size() == 0


def test_two_open_files_of_one_name_share_their_bytes(disk: Disk, directory: Path) -> None:
    first = disk.create(directory / "f")
    second = disk.open(directory / "f")

    first.write_at(0, [b"abc"])

    assert second.read_at(0, 9) == b"abc"


def test_missing_things_are_reported_as_such(disk: Disk, directory: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(directory / "none")
    with pytest.raises(FileNotFoundError):
        disk.create(directory / "none" / "f")
    with pytest.raises(FileNotFoundError):
        disk.names(directory / "none")
    with pytest.raises(FileNotFoundError):
        disk.rename(directory / "none", directory / "other")
    with pytest.raises(FileNotFoundError):
        disk.remove_tree(directory / "none")
    with pytest.raises(FileNotFoundError):
        disk.sync_directory(directory / "none")
    disk.remove(directory / "none")
    disk.remove(directory / "no" / "ne")
    assert not disk.exists(directory / "none")


def test_names_are_sorted_and_follow_creation_rename_and_removal(
    disk: Disk, directory: Path
) -> None:
    for name in ("c", "a", "b"):
        file_with(disk, directory / name, name.encode())
    disk.make_directory(directory / "d")
    assert disk.names(directory) == ["a", "b", "c", "d"]

    disk.rename(directory / "a", directory / "b")
    disk.remove(directory / "c")
    disk.sync_directory(directory)

    assert disk.names(directory) == ["b", "d"]
    assert disk.open(directory / "b").read_at(0, 9) == b"a"
    assert disk.exists(directory / "d")


def test_a_rename_can_lead_into_another_directory(disk: Disk, directory: Path) -> None:
    disk.make_directory(directory / "d")
    file_with(disk, directory / "f", b"abc")

    disk.rename(directory / "f", directory / "d" / "g")

    assert disk.names(directory) == ["d"]
    assert disk.open(directory / "d" / "g").read_at(0, 9) == b"abc"


def test_a_directory_is_renamed_and_removed_with_all_that_is_in_it(
    disk: Disk, directory: Path
) -> None:
    disk.make_directory(directory / "d" / "e")
    file_with(disk, directory / "d" / "e" / "f", b"abc")

    disk.rename(directory / "d", directory / "x")
    assert disk.open(directory / "x" / "e" / "f").read_at(0, 9) == b"abc"
    assert not disk.exists(directory / "d" / "e")

    disk.remove_tree(directory / "x")
    assert disk.names(directory) == []


def test_an_open_file_outlives_its_name(disk: Disk, directory: Path) -> None:
    file = file_with(disk, directory / "f", b"abc")

    file_with(disk, directory / "g", b"new")
    disk.rename(directory / "g", directory / "f")
    disk.remove(directory / "f")

    assert file.read_at(0, 9) == b"abc"


def test_a_closed_file_refuses_everything(disk: Disk, directory: Path) -> None:
    file = file_with(disk, directory / "f", b"abc")

    file.close()
    file.close()

    with pytest.raises(OSError, match=r".*") as raised:
        file.read_at(0, 1)
    assert raised.value.errno == errno.EBADF


def test_free_space_is_told(disk: Disk, directory: Path) -> None:
    assert disk.free_bytes(directory) > 0


# What only the simulated disk can do.

PLACE = Path("/d")


def sim(capacity_bytes: int | None = None) -> SimDisk:
    disk = SimDisk(capacity_bytes)
    disk.make_directory(PLACE)
    return disk


def durable(disk: SimDisk, content: bytes) -> DiskFile:
    file = file_with(disk, PLACE / "f", content)
    file.sync()
    disk.sync_directory(PLACE)
    return file


def test_what_was_synced_survives_every_power_cut() -> None:
    for seed in range(50):
        disk = sim()
        durable(disk, b"abc" * 1_000)

        disk.crash(Random(seed), "subset")

        assert disk.open(PLACE / "f").read_at(0, 9_999) == b"abc" * 1_000


def test_unsynced_bytes_may_be_lost_kept_or_torn() -> None:
    fates = set()
    for seed in range(300):
        disk = sim()
        file = durable(disk, b"")
        file.write_at(0, [b"x" * 2_000])
        disk.crash(Random(seed))
        found = disk.content(PLACE / "f")
        if found in (b"", b"x" * 2_000):
            fates.add("lost" if not found else "kept")
        elif set(found) == {ord("x")}:
            fates.add("torn")
        elif len(found) == found.count(b"x") + found.count(b"\0"):
            fates.add("holes of zeros")
        else:
            fates.add("garbage")

    assert fates == {"lost", "kept", "torn", "holes of zeros", "garbage"}


def test_an_unsynced_overwrite_leaves_whole_sectors_of_the_old_or_the_new() -> None:
    mixed = 0
    for seed in range(100):
        disk = sim()
        file = durable(disk, b"o" * 2_048)
        file.write_at(0, [b"n" * 2_048])
        disk.crash(Random(seed))
        found = disk.content(PLACE / "f")
        assert len(found) == 2_048
        assert set(found) <= set(b"on")
        mixed += len(set(found)) == 2

    assert mixed > 0


def test_an_unsynced_cut_may_be_undone() -> None:
    sizes = set()
    for seed in range(50):
        disk = sim()
        durable(disk, b"abcdef").truncate(2)
        disk.crash(Random(seed))
        sizes.add(disk.open(PLACE / "f").size())

    assert sizes == {2, 6}


def test_unsynced_names_survive_as_a_prefix_or_as_any_subset() -> None:
    found: dict[str, set[str]] = {"prefix": set(), "subset": set()}
    for order in ("prefix", "subset"):
        for seed in range(100):
            disk = sim()
            for name in "abc":
                disk.create(PLACE / name).sync()
            disk.crash(Random(seed), order)
            found[order].add("".join(disk.names(PLACE)))

    assert found["prefix"] == {"", "a", "ab", "abc"}
    assert found["subset"] == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_a_rename_is_never_half_done() -> None:
    for seed in range(50):
        disk = sim()
        durable(disk, b"old")
        file_with(disk, PLACE / "g", b"new").sync()
        disk.sync_directory(PLACE)
        disk.rename(PLACE / "g", PLACE / "f")

        disk.crash(Random(seed), "subset")

        names = disk.names(PLACE)
        content = disk.content(PLACE / "f")
        assert (names, content) in ((["f", "g"], b"old"), (["f"], b"new"))


def test_a_killed_process_leaves_all_it_wrote_and_none_of_it_durable() -> None:
    disk = sim()
    file = durable(disk, b"abc")
    file.write_at(3, [b"def"])
    disk.create(PLACE / "g")

    disk.kill()
    assert disk.content(PLACE / "f") == b"abcdef"
    assert disk.names(PLACE) == ["f", "g"]

    lost = [disk.copy() for _ in range(40)]
    for seed, copy in enumerate(lost):
        copy.crash(Random(seed))
    assert {copy.content(PLACE / "f") for copy in lost} > {b"abc", b"abcdef"}


def test_files_of_an_earlier_life_are_dead() -> None:
    disk = sim()
    file = durable(disk, b"abc")

    disk.kill()

    with pytest.raises(MachineStopped):
        file.read_at(0, 1)
    with pytest.raises(MachineStopped):
        file.write_at(0, [b"x"])


def test_the_machine_stops_before_the_chosen_operation_and_stays_off() -> None:
    disk = sim()
    disk.stop_before(2)
    file = disk.create(PLACE / "f")
    file.write_at(0, [b"abc"])

    with pytest.raises(MachineStopped):
        file.sync()
    with pytest.raises(MachineStopped):
        disk.names(PLACE)
    with pytest.raises(MachineStopped):
        disk.remove(PLACE / "f")

    disk.kill()
    assert disk.content(PLACE / "f") == b"abc"


def test_a_failed_sync_loses_the_writes_even_if_the_next_one_succeeds() -> None:
    disk = sim()
    file = durable(disk, b"abc")
    file.write_at(3, [b"def"])
    disk.fail_sync()

    with pytest.raises(OSError, match="sync") as raised:
        file.sync()
    assert raised.value.errno == errno.EIO
    assert file.read_at(0, 9) == b"abcdef"
    file.sync()
    disk.crash(Random(1))

    assert disk.content(PLACE / "f") == b"abc"


def test_the_chosen_sync_fails_and_no_other() -> None:
    disk = sim()
    file = durable(disk, b"abc")
    disk.fail_sync(2)

    file.sync()
    disk.sync_directory(PLACE)
    with pytest.raises(OSError, match="sync"):
        disk.sync_directory(PLACE)
    file.sync()


@pytest.mark.parametrize(("tears", "found"), [(False, b"abc"), (True, b"abcde")])
def test_a_full_disk_refuses_a_write_whole_or_in_part(tears: bool, found: bytes) -> None:
    disk = sim(capacity_bytes=5)
    disk.tears_when_full = tears
    file = durable(disk, b"abc")
    assert disk.free_bytes(PLACE) == 2

    with pytest.raises(OSError, match="full") as raised:
        file.write_at(3, [b"def"])

    assert raised.value.errno == errno.ENOSPC
    assert file.read_at(0, 9) == found
    file.write_at(0, [b"XYZ"])
    file.truncate(0)
    assert disk.free_bytes(PLACE) == 5


def test_a_flipped_bit_stays_flipped() -> None:
    disk = sim()
    durable(disk, b"abc")

    disk.flip_bit(PLACE / "f", 1, bit=0)
    disk.crash(Random(0))

    assert disk.content(PLACE / "f") == b"acc"


@pytest.mark.parametrize("is_held", [True, False])
def test_what_a_later_view_shows_does_not_depend_on_earlier_ones(is_held: bool) -> None:
    disk = sim()
    file = durable(disk, b"abc")
    held = [file.view()]
    if not is_held:
        held.clear()
    file.write_at(3, [b"def"])
    later = file.view()

    disk.flip_bit(PLACE / "f", 0)

    assert bytes(later) == b"`bcdef"
    assert [bytes(view) for view in held] == [b"abc"] * is_held


def test_the_same_seed_gives_the_same_bytes() -> None:
    def life(seed: int) -> bytes:
        disk = sim()
        file = durable(disk, b"a" * 5_000)
        for number in range(20):
            file.write_at(number * 300, [bytes([number]) * 700])
        disk.crash(Random(seed), "subset")
        return disk.content(PLACE / "f")

    assert [life(seed) for seed in range(5)] == [life(seed) for seed in range(5)]
    assert life(1) != life(2)


def test_a_copy_shares_nothing_with_its_original() -> None:
    disk = sim()
    file = durable(disk, b"abc")
    file.write_at(3, [b"d"])

    copy = disk.copy()
    file.write_at(0, [b"X"])
    disk.remove(PLACE / "f")

    assert copy.content(PLACE / "f") == b"abcd"
    copy.open(PLACE / "f").sync()
    copy.crash(Random(0))
    assert copy.content(PLACE / "f") == b"abcd"

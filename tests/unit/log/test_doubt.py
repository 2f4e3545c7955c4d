from random import Random

from penstock.ids import EntryIndex, Term
from penstock.log.doubt import Doubt, load_doubt, save_doubt
from penstock.testing import MachineStopped, SimDisk

from .entries import DIRECTORY, append, append_state, new_log, open_log


def doubt(term: int, index: int) -> Doubt:
    return Doubt(Term(term), EntryIndex(index))


def test_the_largest_claim_is_kept() -> None:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    assert load_doubt(disk, DIRECTORY) == (0, 0)

    for claim in (doubt(2, 7), doubt(3, 1), doubt(2, 9), doubt(3, 1)):
        save_doubt(disk, DIRECTORY, claim)

    assert load_doubt(disk, DIRECTORY) == (3, 1)


def test_a_claim_is_durable_before_the_rows_that_make_it_are_cut() -> None:
    for operations in range(30):
        disk, log = new_log()
        append(log, b"a")
        append_state(log, b"s")
        append(log, b"b", term=4)
        disk.sync_directory(DIRECTORY)
        log.segments[0].files.index.sync()
        disk.flip_bit(log.segments[0].path(".log"), log.row_at(2).log_position + 65)
        disk.kill()
        disk.stop_before(operations)
        try:
            open_log(disk)
        except MachineStopped:
            disk.crash(Random(operations))
        else:
            disk.kill()

        assert open_log(disk).doubt == (4, 2)


def test_a_whole_log_has_no_doubt() -> None:
    disk, log = new_log()
    append(log, b"a")
    disk.kill()

    assert open_log(disk).doubt == (0, 0)

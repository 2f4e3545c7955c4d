"""What compaction may leave of a batch."""

from penstock.record import Record, decode_records, read_header
from penstock.record.batch import checksum_matches


class NewestOfKeys:
    """The newest committed offset of each key."""

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}

    def add(self, batch: bytes) -> None:
        """Take note of a committed batch."""
        for record in decode_records(batch):
            if record.key is not None:
                self._offsets[record.key] = record.offset

    def may_leave(self, original: bytes, found: bytes) -> bool:
        """Whether `found` lacks nothing of `original` but replaced records and tombstones."""
        if found == original:
            return True
        if not checksum_matches(found) or _place(original) != _place(found):
            return False
        left = {record.offset: record for record in decode_records(found)}
        return (
            all(
                left.pop(record.offset) == record if record.offset in left else self._may_go(record)
                for record in decode_records(original)
            )
            and not left
        )

    def may_remove(self, batch: bytes) -> bool:
        """Whether nothing of a batch has to be left."""
        return all(map(self._may_go, decode_records(batch)))

    def _may_go(self, record: Record) -> bool:
        if record.key is None:
            return False
        return record.value is None or self._offsets[record.key] > record.offset


def _place(batch: bytes) -> tuple[int, ...]:
    header = read_header(batch)
    return header.base_offset, header.last_offset_delta, header.leader_epoch

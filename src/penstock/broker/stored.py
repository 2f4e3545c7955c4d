"""The records in batches that were read off a log, for answers that show them one by one.

A Kafka client is sent batches as they are stored and compares their checksums itself. Whoever is
sent records has nothing left to compare, so the checksums are compared here.
"""

from collections.abc import Iterator

from penstock.cluster import Partition
from penstock.errors import Corruption
from penstock.record import Record, batch_size, checksum_matches, decode_records, read_header


def stored_records(partition: Partition, data: bytes, *, offset: int) -> Iterator[Record]:
    """Yield the records of whole batches from `offset` on, without those of the broker itself.

    Raises `Corruption` at a batch that is not what was stored, which is looked at then.
    """
    view = memoryview(data)
    position = 0
    while position < len(view):
        batch = view[position : position + batch_size(view, position)]
        header = read_header(batch)
        if not checksum_matches(batch):
            partition.log.suspicion.arise(header.base_offset)
            raise Corruption(
                f"the batch at offset {header.base_offset} of {partition.place} fails its checksum"
            )
        if not header.is_control:
            yield from (record for record in decode_records(batch) if record.offset >= offset)
        position += len(batch)


def end_offset(data: bytes) -> int:
    """Return the offset after the last batch."""
    position = 0
    while (following := position + batch_size(data, position)) < len(data):
        position = following
    return read_header(data, position).next_offset

"""Record batches as bytes: framing, checksum, compression, keys and headers.

This room knows Kafka's batch format, version 2, and nothing about files, networks or time. It reads
and stamps the header of a batch without touching the records inside, which is all that the plain
path of a message needs, and it can decode and encode the records for those who must look inside.
"""

from penstock.record.attributes import (
    DELIVER_AT,
    EXPIRES_AT,
    ID,
    IDEMPOTENCY_KEY,
    NO_ATTRIBUTES,
    PREFIX,
    PRIORITY,
    PRIORITY_MAX,
    PRIORITY_NORMAL,
    TIME_MS_MAX,
    Attributes,
    attributes_of,
    batch_may_have_attributes,
    checked_idempotency_key,
    parse_priority,
    parse_time_ms,
)
from penstock.record.batch import (
    HEADER_BYTES,
    STAGE_PRODUCER_ID,
    BatchHeader,
    Buffer,
    RecordBatch,
    batch_size,
    checksum_matches,
    frame_batch,
    read_header,
    split_batches,
    stamp,
    stamp_append_time,
    stamp_producer,
    verify_checksum,
)
from penstock.record.compression import Codec, compress, decompress
from penstock.record.partitioning import murmur2, partition_of_key
from penstock.record.records import (
    Record,
    batch_without_records,
    decode_records,
    encode_batch,
    rewrite_batch,
)

__all__ = [
    "DELIVER_AT",
    "EXPIRES_AT",
    "HEADER_BYTES",
    "ID",
    "IDEMPOTENCY_KEY",
    "NO_ATTRIBUTES",
    "PREFIX",
    "PRIORITY",
    "PRIORITY_MAX",
    "PRIORITY_NORMAL",
    "STAGE_PRODUCER_ID",
    "TIME_MS_MAX",
    "Attributes",
    "BatchHeader",
    "Buffer",
    "Codec",
    "Record",
    "RecordBatch",
    "attributes_of",
    "batch_may_have_attributes",
    "batch_size",
    "batch_without_records",
    "checked_idempotency_key",
    "checksum_matches",
    "compress",
    "decode_records",
    "decompress",
    "encode_batch",
    "frame_batch",
    "murmur2",
    "parse_priority",
    "parse_time_ms",
    "partition_of_key",
    "read_header",
    "rewrite_batch",
    "split_batches",
    "stamp",
    "stamp_append_time",
    "stamp_producer",
    "verify_checksum",
]

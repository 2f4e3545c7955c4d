"""What a batch must be like to be accepted."""

from typing import Any

import pytest
from crc32c import crc32c

from penstock.broker import Broker
from penstock.errors import (
    BadChecksum,
    BatchTooLarge,
    DiskFull,
    InvalidBatch,
    InvalidTimestamp,
    NotEnoughReplicas,
    PenstockError,
    TopicNotFound,
)
from penstock.record import HEADER_BYTES, Codec, Record, encode_batch, read_header
from tests.unit.broker.brokers import set_for_long, started
from tests.unit.cluster.workplaces import PLACE, SimMachine, numbered_batch, run


def encoded(*values: bytes, key: bytes | None = None, timestamp: int = 0) -> bytearray:
    return encode_batch([Record(n, timestamp, key, value) for n, value in enumerate(values)])


async def publish(broker: Broker, data: bytearray) -> int:
    return await broker.publisher.publish(PLACE, memoryview(data)).offset


async def with_setting(name: str, value: str, **options: Any) -> Broker:
    broker = await started(**options)
    await set_for_long(broker, {name: value})
    return broker


def test_a_batch_is_stored_and_counted() -> None:
    async def scene() -> None:
        broker = await started()

        assert await publish(broker, encoded(b"a", b"b")) == 0
        assert await publish(broker, data := encoded(b"c")) == 2

        counts = broker.statistics
        assert (counts.batches_in, counts.records_in) == (2, 3)
        assert counts.bytes_in > len(data)

    run(scene())


@pytest.mark.parametrize(
    ("setting", "value", "data", "error"),
    [
        ("max.message.bytes", "100", encoded(b"x" * 100), BatchTooLarge),
        ("cleanup.policy", "compact", encoded(b"no key"), InvalidBatch),
        ("min.insync.replicas", "2", encoded(b"a"), NotEnoughReplicas),
        ("message.timestamp.before.max.ms", "1000", encoded(b"a", timestamp=1), InvalidTimestamp),
        (
            "message.timestamp.after.max.ms",
            "1000",
            encoded(b"a", timestamp=2**45),
            InvalidTimestamp,
        ),
    ],
)
def test_the_settings_of_the_topic_decide(
    setting: str, value: str, data: bytearray, error: type[PenstockError]
) -> None:
    async def scene() -> None:
        broker = await with_setting(setting, value)

        with pytest.raises(error):
            await publish(broker, bytearray(data))

        assert broker.statistics.batches_in == 0
        assert broker.partition(PLACE).high_watermark == 0

    run(scene())


@pytest.mark.parametrize("ages_ms", [(0, 1_001, 0), (0, 1_001), (1_000, 0, 1_001)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_record_that_is_too_old_is_refused_wherever_in_its_batch_it_is(
    codec: Codec, ages_ms: tuple[int, ...]
) -> None:
    def dated(now_ms: int, *ages_ms: int) -> bytearray:
        records = [Record(n, now_ms - age_ms, None, b"") for n, age_ms in enumerate(ages_ms)]
        return encode_batch(records, codec=codec)

    async def scene() -> None:
        machine = SimMachine()
        broker = await with_setting("message.timestamp.before.max.ms", "1000", machine=machine)
        now_ms = machine.clock.now_ms()

        with pytest.raises(InvalidTimestamp, match="1001 ms back"):
            await publish(broker, dated(now_ms, *ages_ms))

        assert await publish(broker, dated(now_ms, 0, 1_000, 0)) == 0

    run(scene())


@pytest.mark.parametrize("headers", [(), (("penstock-priority", b"9"),)])
def test_a_batch_that_would_take_all_memory_when_it_is_opened_is_refused(
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    async def scene() -> None:
        broker = await started()
        packed = encode_batch([Record(0, 1, None, bytes(2**27), headers)], codec=Codec.ZSTD)

        with pytest.raises(BatchTooLarge, match=f"{2**27} bytes"):
            await publish(broker, packed)

        assert await publish(broker, encoded(b"a")) == 0

    run(scene())


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_nobody_could_open_is_refused(codec: Codec) -> None:
    async def scene() -> None:
        broker = await started()
        packed = encode_batch([Record(0, 1, None, b"x" * 100)], codec=codec)
        packed[HEADER_BYTES:] = b"\xff" * (len(packed) - HEADER_BYTES)
        packed[17:21] = crc32c(packed[21:]).to_bytes(4, "big")

        with pytest.raises(InvalidBatch, match="cannot be read"):
            await publish(broker, packed)

        assert await publish(broker, encoded(b"a")) == 0

    run(scene())


def test_a_batch_with_a_wrong_checksum_is_refused() -> None:
    async def scene() -> None:
        data = encoded(b"value")
        data[-1] ^= 1

        with pytest.raises(BadChecksum):
            await publish(await started(), data)

    run(scene())


def test_two_batches_in_one_request_are_refused() -> None:
    async def scene() -> None:
        with pytest.raises(InvalidBatch):
            await publish(await started(), encoded(b"a") + encoded(b"b"))

    run(scene())


def test_append_time_is_put_into_the_batch_and_told() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        await broker.topics.change_settings(
            "orders", {"message.timestamp.type": "LogAppendTime"}, []
        )

        publication = broker.publisher.publish(PLACE, memoryview(encoded(b"a", timestamp=5)))
        await publication.offset

        assert publication.append_time_ms == machine.clock.now_ms()
        stored = broker.partition(PLACE).read(0, bytes_max=1)
        assert stored is not None
        assert read_header(stored.read()).max_timestamp == machine.clock.now_ms()

    run(scene())


def test_a_partition_that_does_not_exist_is_not_found() -> None:
    async def scene() -> None:
        broker = await started()
        for place in (PLACE._replace(partition=2), PLACE._replace(topic="nothing")):
            with pytest.raises(TopicNotFound):
                broker.publisher.publish(place, memoryview(encoded(b"a")))

    run(scene())


def test_an_idempotent_producer_keeps_its_order_over_a_disk_that_is_low() -> None:
    async def scene() -> None:
        machine = SimMachine(capacity_bytes=1_000_000)
        broker = await started(machine, disk_free_bytes_min=500_000)
        machine.disk.capacity_bytes = 400_000
        broker.space.refresh()
        with pytest.raises(DiskFull):
            broker.publisher.publish(PLACE, numbered_batch(0, b"a").data)
        machine.disk.capacity_bytes = 2_000_000
        broker.space.refresh()

        with pytest.raises(DiskFull):
            broker.publisher.publish(PLACE, numbered_batch(1, b"b").data)
        for sequence in (0, 1):
            batch = numbered_batch(sequence, b"v").data
            assert await broker.publisher.publish(PLACE, batch).offset == sequence

    run(scene())

import pytest

from penstock.record import murmur2, partition_of_idempotency_key, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_a_key_has_one_partition_of_those_there_are() -> None:
    found = {partition_of_key(str(number).encode(), 5) for number in range(200)}

    assert found == set(range(5))
    assert partition_of_key(b"k", 7) == partition_of_key(b"k", 7)


def test_idempotency_keys_that_are_numbered_go_by_their_number() -> None:
    keys = [f"~0123456789-_abcD~{number:x}" for number in range(0xFFFFFFFFFF, 0xFFFFFFFFFF + 6)]

    assert [partition_of_idempotency_key(key, 3) for key in keys] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    "key",
    [
        "order-7",
        "~0123456789abcdef~",
        "~0123456789abcde~7",
        "~0123456789abcdef~G",
        "~0123456789abcdef~7 ",
        "~0123456789abcdef~7\n",
        "~0123456789abcd\u00e9f~7",
        "~0123456789abcdef~\u0667",
        "~0123456789abcdef~0123456789abcdef",
    ],
)
def test_other_idempotency_keys_go_by_their_hash(key: str) -> None:
    expected = partition_of_key(key.encode(), 1_009)

    assert partition_of_idempotency_key(key, 1_009) == expected

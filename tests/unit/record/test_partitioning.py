import pytest

from penstock.record import murmur2, partition_of_key


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

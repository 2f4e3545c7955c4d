"""Messages that go out together: what the dispatcher picks, with the records that it is about.

What is too old or gone is told apart, and what would make the portion too large is put back.
"""

from collections.abc import Iterable
from contextlib import suppress
from zlib import crc32

import msgspec

from penstock.cluster.recent_records import DELIVERY_BYTES_MAX, RecentRecords
from penstock.delivery import Dispatcher, GroupSettings, Pick, Run, to_runs
from penstock.errors import InvalidRequest
from penstock.record import EXPIRES_AT, Record, parse_time_ms


class Portion(msgspec.Struct, frozen=True):
    """Messages that are about to go out, as `Leased` and `Delivery` will tell of them."""

    at_ms: int
    runs: list[Run]
    records: list[Record]
    attempts: list[int]
    """How often each of the records has gone out then."""
    keys: list[int | None]
    expired: list[Run]
    is_plain: bool = False
    """True when all go out for the first time and none has headers."""


class Portions:
    """Takes portions out of one partition."""

    def __init__(self, records: RecentRecords) -> None:
        self._records = records

    def take(
        self,
        dispatcher: Dispatcher,
        count_max: int,
        settings: GroupSettings,
        *,
        end: int,
        now_ms: int,
        bytes_max: int = DELIVERY_BYTES_MAX,
    ) -> Portion | None:
        """Choose and read up to `count_max` messages below `end`; None when there is none.

        The first one is taken however large it is.

        When it raises, what was picked is lost to this dispatcher, and another has to be built.
        """
        bytes_max = min(bytes_max, DELIVERY_BYTES_MAX)
        fresh = dispatcher.pick_fresh(count_max, end=end, now_ms=now_ms)
        if fresh is None:
            picks = dispatcher.pick(count_max, end=end, now_ms=now_ms, key_of=self._key_of)
            return self._read(dispatcher, picks, settings, now_ms, bytes_max) if picks else None
        # A plain run is as large as a delivery may be.
        is_bounded = settings.ttl_ms or bytes_max < DELIVERY_BYTES_MAX
        if not is_bounded and (records := self._records.read_plain(fresh)) is not None:
            return Portion(now_ms, [fresh], records, [1] * len(records), [], [], is_plain=True)
        picks = [Pick(offset, 0) for offset in range(*fresh)]
        return self._read(dispatcher, picks, settings, now_ms, bytes_max)

    def _key_of(self, offset: int) -> int | None:
        record = self._records.get(offset)
        return None if record is None or record.key is None else crc32(record.key)

    def _read(
        self,
        dispatcher: Dispatcher,
        picks: list[Pick],
        settings: GroupSettings,
        now_ms: int,
        bytes_max: int,
    ) -> Portion:
        """Read what was picked; put back what is too much, tell apart what is too old or gone."""
        offsets = [pick.offset for pick in picks]
        records: list[Record] = []
        attempts: list[int] = []
        expired: list[int] = []
        ttl_ms = settings.ttl_ms
        size_bytes = 0
        for pick, record in zip(picks, self._found(offsets), strict=True):
            if record is None or (
                (ttl_ms or record.headers) and _is_expired(record, ttl_ms, now_ms)
            ):
                expired.append(pick.offset)
                continue
            size_bytes += len(record.value or b"") + len(record.key or b"")
            if size_bytes > bytes_max and records:
                dispatcher.put_back(offsets[len(records) + len(expired) :])
                break
            records.append(record)
            attempts.append(pick.attempts + 1)
        out = sorted([record.offset for record in records])
        keys = _keys_of(picks, out) if settings.order.is_by_key else []
        return Portion(now_ms, to_runs(out), records, attempts, keys, to_runs(sorted(expired)))

    def _found(self, offsets: list[int]) -> list[Record | None]:
        """Read records in the order of the offsets."""
        ascending = sorted(offsets)
        found = self._records.read(to_runs(ascending))
        if ascending == offsets:
            return found
        by_offset = dict(zip(ascending, found, strict=True))
        return [by_offset[offset] for offset in offsets]


def _is_expired(record: Record, ttl_ms: int, now_ms: int) -> bool:
    """True when a record is too old to be delivered."""
    if ttl_ms and record.timestamp + ttl_ms <= now_ms:
        return True
    for name, value in record.headers:
        if name == EXPIRES_AT and value is not None:
            # Whoever published past the doors may have written anything; that expires nothing.
            with suppress(InvalidRequest, UnicodeDecodeError):
                return parse_time_ms(name, value.decode()) <= now_ms
    return False


def _keys_of(picks: Iterable[Pick], offsets: Iterable[int]) -> list[int | None]:
    keys = {pick.offset: pick.key for pick in picks}
    return [keys[offset] for offset in offsets]

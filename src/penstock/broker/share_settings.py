"""What a share group can be told, under the names that Kafka's tools use."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InvalidSetting

_RESET = "share.auto.offset.reset"
_LOCK = "share.record.lock.duration.ms"
_DELIVERIES = "share.delivery.count.limit"
_ISOLATION = "share.isolation.level"
_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class ShareSetting:
    """One setting: its default, and what is wrong with other values."""

    default: str
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()

    def complaint(self, value: str) -> str | None:
        """Return what is wrong with a value."""
        if self.choices:
            return None if value in self.choices else f"is none of {', '.join(self.choices)}"
        is_short = value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX
        if not is_short or not self.least <= int(value) <= self.most:
            return f"is not a whole number between {self.least} and {self.most}"
        return None


SHARE_SETTINGS: Mapping[str, ShareSetting] = {
    _RESET: ShareSetting("latest", choices=("earliest", "latest")),
    _LOCK: ShareSetting("30000", least=1_000, most=3_600_000),
    _DELIVERIES: ShareSetting("5", least=2, most=1_000),
    # Without transactions, what is in the log is committed.
    _ISOLATION: ShareSetting("read_uncommitted", choices=("read_uncommitted", "read_committed")),
}


def check_share_settings(given: Mapping[str, str]) -> None:
    """Raise `InvalidSetting` for names that do not exist and values outside their limits."""
    for name, value in given.items():
        setting = SHARE_SETTINGS.get(name)
        if setting is None:
            raise InvalidSetting(
                f"{name} is no setting of a share group; there are {', '.join(SHARE_SETTINGS)}"
            )
        complaint = setting.complaint(value)
        if complaint is not None:
            raise InvalidSetting(f"{name} is {value!r}, which {complaint}")


def queue_group_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return what the settings of a share group mean to the queue group behind it."""

    def value(name: str) -> str:
        return given.get(name, SHARE_SETTINGS[name].default)

    return {
        "delivery.start": value(_RESET),
        "delivery.lease.ms": value(_LOCK),
        "delivery.attempts.max": value(_DELIVERIES),
        "delivery.backoff.min.ms": "0",
    }

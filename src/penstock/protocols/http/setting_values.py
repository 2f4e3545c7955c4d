"""Settings of topics and queue groups in JSON: text, or the number or boolean that they are."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

SettingValue = str | bool | int | float
GivenSetting = Annotated[SettingValue, Meta(description="A text, a number or a boolean.")]


def split_settings(
    settings: Mapping[str, SettingValue | None],
) -> tuple[dict[str, str], list[str]]:
    """Return settings that get a value, as their text, and those that lose theirs by null."""
    changed = {name: setting_text(value) for name, value in settings.items() if value is not None}
    return changed, [name for name, value in settings.items() if value is None]


def setting_text(value: SettingValue) -> str:
    """Return a value as it is written in settings; whether it is allowed there is not looked at."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

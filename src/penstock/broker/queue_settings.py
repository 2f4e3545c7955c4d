"""The settings in which a topic keeps what it is as a queue of SQS, and what may stand in them.

Any door can set them, so they are checked here and not where queues are served. Each is a JSON
object of texts, which the cluster makes sure of.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec

from penstock.broker.queue_attributes import check_queue_attribute
from penstock.errors import InvalidSetting

ATTRIBUTES_SETTING = "sqs.attributes"
TAGS_SETTING = "sqs.tags"
TASKS_SETTING = "sqs.move.tasks"
PROGRESS_SETTING = "sqs.move.progress"
TAGS_MAX = 50
TASKS_KEPT = 10
MOVE_RATE_MAX = 500
_TAG_KEY_MAX = 128
_TAG_VALUE_MAX = 256
_SHOWN_MAX = 80

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
MoveStatus = Literal["RUNNING", "COMPLETED", "CANCELLED", "FAILED"]


class AskedMove(msgspec.Struct, frozen=True):
    """A message move task, as somebody asked for it."""

    started_ms: Count
    to_move: Count
    destination: str | None = None
    rate: Annotated[int, msgspec.Meta(ge=1, le=MOVE_RATE_MAX)] | None = None
    is_cancelled: bool = False


class MoveProgress(msgspec.Struct, frozen=True):
    """How far a message move task is."""

    moved: Count = 0
    status: MoveStatus = "RUNNING"
    failure: str = ""


def check_queue_settings(settings: Mapping[str, str]) -> None:
    """Raise `InvalidSetting` that names everything wrong with the settings of a queue."""
    faults = []
    for name, check in _CHECKS.items():
        if name in settings:
            try:
                check(kept_texts(settings, name))
            except InvalidSetting as fault:
                faults.append(f"{name}: {fault}")
    if faults:
        raise InvalidSetting("; ".join(faults))


def kept_texts(settings: Mapping[str, str], name: str) -> dict[str, str]:
    """Return what one of these settings holds."""
    return msgspec.json.decode(settings.get(name) or "{}", type=dict[str, str])


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise `InvalidSetting` when a queue cannot have these tags."""
    if len(tags) > TAGS_MAX:
        raise InvalidSetting(f"{len(tags)} tags are more than {TAGS_MAX}")
    for key, value in tags.items():
        if not 1 <= len(key) <= _TAG_KEY_MAX:
            raise InvalidSetting(
                f"the key {key[:_SHOWN_MAX]!r} of a tag has {len(key)} characters, not 1 to"
                f" {_TAG_KEY_MAX}"
            )
        if len(value) > _TAG_VALUE_MAX:
            raise InvalidSetting(
                f"the tag {key} has a value of {len(value)} characters, at most {_TAG_VALUE_MAX}"
                " are allowed"
            )


def _check_attributes(kept: Mapping[str, str]) -> None:
    for name, value in kept.items():
        check_queue_attribute(name, value)


def _check_tasks(kept: Mapping[str, str]) -> None:
    if len(kept) > TASKS_KEPT:
        raise InvalidSetting(f"{len(kept)} move tasks are more than {TASKS_KEPT}")
    _check_each(kept, AskedMove)


def _check_progress(kept: Mapping[str, str]) -> None:
    _check_each(kept, MoveProgress)


def _check_each(kept: Mapping[str, str], kind: type[msgspec.Struct]) -> None:
    for handle, text in kept.items():
        try:
            msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError as error:
            raise InvalidSetting(
                f"{text[:_SHOWN_MAX]!r} of {handle[:_SHOWN_MAX]!r} cannot be read: {error}"
            ) from None


_CHECKS: Mapping[str, Callable[[Mapping[str, str]], None]] = {
    ATTRIBUTES_SETTING: _check_attributes,
    TAGS_SETTING: check_tags,
    TASKS_SETTING: _check_tasks,
    PROGRESS_SETTING: _check_progress,
}

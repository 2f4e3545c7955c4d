"""Settings as somebody gives them, checked more closely than those that are kept.

What is kept was accepted once, and every replica goes on accepting it. So what is stricter than the
check that replicas make is looked at here, before a change is proposed.
"""

from collections.abc import Iterator, Mapping

from penstock.broker.queue_settings import check_queue_settings
from penstock.cluster import DEFINITIONS, SettingType
from penstock.errors import InvalidSetting

_NUMBERS = (SettingType.INT, SettingType.LONG, SettingType.DOUBLE)
_DEAD_LETTER_TOPIC = "delivery.dead.letter.topic"


def check_given_settings(topic: str, given: Mapping[str, str]) -> None:
    """Raise `InvalidSetting` that names what a topic, or a group of it, cannot be set to."""
    faults = "; ".join(_faults(topic, given))
    if faults:
        raise InvalidSetting(faults)
    check_queue_settings(given)


def _faults(topic: str, given: Mapping[str, str]) -> Iterator[str]:
    for name, value in given.items():
        # Python reads 1_000 and digits of any script; clients that read it back do not.
        is_plain = value.isascii() and "_" not in value
        if DEFINITIONS[name].type in _NUMBERS and not is_plain:
            yield f"{name}={value} is not written in digits alone"
    dead_letter_topic = given.get(_DEAD_LETTER_TOPIC, "")
    if dead_letter_topic in (".", ".."):
        yield f"{_DEAD_LETTER_TOPIC}={dead_letter_topic} is not the name of a topic"
    if dead_letter_topic == topic:
        yield f"{_DEAD_LETTER_TOPIC}={topic} is the topic itself, and dead letters would come back"

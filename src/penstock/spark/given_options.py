"""Options as Spark hands them over: names without case, values as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import InvalidRequest
from penstock.spark.connection import addresses_of


@dataclass(frozen=True, slots=True)
class Option:
    """One option as the reference page tells of it."""

    name: str
    default: str
    meaning: str


class GivenOptions:
    """What a user gave; a name that is not among `known` is refused."""

    def __init__(self, given: Mapping[str, str], known: Sequence[Option], told: str) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}
        names = {option.name.lower(): option.name for option in known}
        unknown = sorted(name for name in self._given if name not in names)
        if unknown:
            raise InvalidRequest(
                f"unknown option{'s' if len(unknown) > 1 else ''} {', '.join(unknown)};"
                f" the {told} knows {', '.join(names.values())}"
            )

    def text(self, name: str) -> str | None:
        """Return an option, None when it was not given."""
        return self._given.get(name.lower())

    def bootstrap(self) -> str:
        """Return the addresses, which must be there and make sense."""
        text = self.text("kafka.bootstrap.servers")
        if not text or not addresses_of(text):
            raise InvalidRequest("kafka.bootstrap.servers is missing: addresses of brokers")
        return text

    def count(self, name: str) -> int | None:
        """Return a number above zero, None when it was not given."""
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or not 1 <= int(text) < 2**63:
            raise InvalidRequest(f"{name} is {text!r}, not a number from 1 on")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise InvalidRequest(f"{name} is {text!r}, not true or false")
        return text.lower() == "true"

    def word(self, name: str, words: Sequence[str]) -> str:
        """Return one of some words; the first is the default."""
        text = (self.text(name) or words[0]).strip().lower()
        if text not in words:
            raise InvalidRequest(f"{name} is {self.text(name)!r}, not {' or '.join(words)}")
        return text

"""What `penstock produce` publishes: values, lines, whole files; with or without keys."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Key and value of one message; `origin` tells where they were read, for error messages."""

    key: bytes | None
    value: bytes | None
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that a command names; when it names nothing, lines of `stdin` are read."""

    values: Sequence[str] = ()
    line_files: Sequence[Path] = ()
    value_files: Sequence[Path] = ()
    has_tombstone: bool = False

    def payloads(self, stdin: BinaryIO) -> Iterator[Payload]:
        """Read all sources, one message at a time, without keys."""
        if not (self.values or self.line_files or self.value_files or self.has_tombstone):
            yield from _lines(stdin, "standard input")
        for value in self.values:
            yield Payload(key=None, value=to_bytes(value), origin="--value")
        for path in self.line_files:
            with _open(path) as stream:
                yield from _lines(stream, str(path))
        for path in self.value_files:
            with _open(path) as stream:
                yield Payload(key=None, value=stream.read(), origin=str(path))
        if self.has_tombstone:
            yield Payload(key=None, value=None, origin="--tombstone")


def with_key(payloads: Iterable[Payload], key: bytes | None) -> Iterator[Payload]:
    """Give every message the same key."""
    for each in payloads:
        yield Payload(key=key, value=each.value, origin=each.origin)


def split_keys(payloads: Iterable[Payload], separator: bytes) -> Iterator[Payload]:
    """Take each message's key from what stands before the first separator."""
    for each in payloads:
        key, found, value = (each.value or b"").partition(separator)
        if not found:
            shown = separator.decode(errors="backslashreplace")
            raise InvalidRequest(f"{each.origin} has no key separator {shown!r}")
        yield Payload(key=key, value=value, origin=each.origin)


def to_bytes(argument: str) -> bytes:
    """Return an argument as it was typed; bytes that are no text are lone surrogates in it."""
    return argument.encode(errors="surrogateescape")


def _lines(stream: BinaryIO, name: str) -> Iterator[Payload]:
    for number, line in enumerate(stream, start=1):
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        yield Payload(key=None, value=value, origin=f"line {number} of {name}")


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None

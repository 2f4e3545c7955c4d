"""How this room writes its values down.

Messages, entries and effects are made several times per replicated batch, and making a frozen
dataclass costs four times as much as making a plain one. `value` keeps both: the type checker
refuses assignment to a field, and the interpreter sees a plain slotted dataclass.
"""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

ValueT = TypeVar("ValueT")


@dataclass_transform(frozen_default=True)
def value(cls: type[ValueT]) -> type[ValueT]:
    """Make `cls` a slotted dataclass that is frozen for the type checker."""
    return dataclass(slots=True, unsafe_hash=True)(cls)

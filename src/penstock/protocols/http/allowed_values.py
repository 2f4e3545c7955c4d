"""What could stand in a body where something stands that cannot be read.

The decoder names a value that is none of those allowed, or a field that does not exist, and not
what there is instead. The shape of the body knows.
"""

import functools
import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.inspect import DictType, ListType, LiteralType, Metadata, StructType, Type, UnionType

_NO_CHOICE = "Invalid enum value"
_NO_FIELD = "Object contains unknown field"
_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
# A field by its name, or whatever a list or an object of any names holds.
_STEP = re.compile(r"\.(\w+)|\[[^]]*\]")


def allowed_instead(error: Exception, kind: type) -> str:
    """Return what is to be said behind an error about a body of a kind; mostly nothing."""
    told = str(error)
    place = _PLACE.search(told)
    path = place["path"] if place else ""
    names: list[str] = []
    if told.startswith(_NO_CHOICE):
        for each in _types_at(kind, path):
            names += map(str, each.values) if isinstance(each, LiteralType) else ()
    elif told.startswith(_NO_FIELD):
        for each in _types_at(kind, path):
            names += _fields_of(each) if isinstance(each, StructType) else ()
    return f"; allowed are {', '.join(sorted(names))}" if names else ""


def _fields_of(struct: StructType) -> list[str]:
    return [field.encode_name for field in struct.fields]


def _types_at(kind: type, path: str) -> Sequence[Type]:
    """Return the types that may stand at a place of a body."""
    found = [_shape_of(kind)]
    for step in _STEP.finditer(path):
        found = [inner for each in found for inner in _inside(each, step[1])]
    return [each for outer in found for each in _alternatives(outer)]


@functools.cache
def _shape_of(kind: type) -> Type:
    return msgspec.inspect.type_info(kind)


def _alternatives(type_: Type) -> Iterator[Type]:
    if isinstance(type_, UnionType):
        for each in type_.types:
            yield from _alternatives(each)
    elif isinstance(type_, Metadata):
        yield from _alternatives(type_.type)
    else:
        yield type_


def _inside(type_: Type, name: str | None) -> Iterator[Type]:
    """Yield what may stand in a field of that name, or else in a list or an object."""
    for each in _alternatives(type_):
        if isinstance(each, StructType):
            yield from (field.type for field in each.fields if field.encode_name == name)
        elif isinstance(each, ListType):
            yield each.item_type
        elif isinstance(each, DictType):
            yield each.value_type

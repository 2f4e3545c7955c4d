"""Column lists as Spark reads them, `id BIGINT NOT NULL, tags ARRAY<STRING>`, checked by shape.

Spark has the last word; this finds a missing type, an unknown one and brackets that do not fit
without starting it.
"""

import re
from collections.abc import Iterator

_TYPES = {
    "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real",
    "double", "decimal", "dec", "numeric", "string", "char", "character", "varchar", "binary",
    "boolean", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "interval", "void",
    "variant", "array", "map", "struct", "object",
}  # fmt: skip
_COLUMN = re.compile(r"\s*(`[^`]+`|\w+)\s*:?\s+(\w+)(.*)", re.DOTALL)
_TYPE = re.compile(r"\s*(\w+)(.*)", re.DOTALL)


def check_ddl(text: str) -> str:
    """Return the text; what cannot be a list of columns raises `ValueError`."""
    if not text.strip():
        raise ValueError("which names no column")
    for column in _split(text):
        match = _COLUMN.fullmatch(column)
        if match is None:
            raise ValueError(f"where {column.strip()!r} is not a name and a type")
        _check_type(match[2], match[3])
    return text


def _check_type(name: str, rest: str) -> None:
    if name.lower() not in _TYPES:
        raise ValueError(f"where {name!r} is not a type that Spark knows")
    opened = rest.strip()
    if not opened.startswith("<"):
        return
    inner = opened[1 : _closing(opened)]
    if name.lower() in ("array", "map"):
        for part in _split(inner):
            match = _TYPE.fullmatch(part)
            if match is None:
                raise ValueError(f"where {name}<{inner}> lacks a type")
            _check_type(match[1], match[2])
    elif inner.strip():
        check_ddl(re.sub(r"(`[^`]+`|\w+)\s*:\s*", r"\1 ", inner))


def _closing(text: str) -> int:
    depth = 0
    for position, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if depth == 0:
            return position
    raise ValueError(f"where a bracket is not closed: {text[:30]}")


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that stand in no bracket and no quotes."""
    depth, start, quote = 0, 0, ""
    for position, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"`":
            quote = sign
        elif sign in "<(":
            depth += 1
        elif sign in ">)":
            depth -= 1
        elif sign == "," and depth == 0:
            yield text[start:position]
            start = position + 1
        if depth < 0:
            raise ValueError(f"where a bracket is closed that was not opened: {text[:30]}")
    if depth or quote:
        raise ValueError(f"where a bracket or a quote is not closed: {text[:30]}")
    yield text[start:]

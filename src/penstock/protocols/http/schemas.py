"""What the OpenAPI document says of one field, in words: its type, its limits and its meaning."""

import json
from typing import Any

# What bounds a value from below and from above, and what is counted.
_LIMITS = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
)


def type_of(schema: dict[str, Any]) -> str:
    """Name the type; a type of the document stands between ``<`` and ``>``."""
    if "$ref" in schema:
        return f"<{schema['$ref'].rsplit('/', 1)[-1]}>"
    if "prefixItems" in schema:
        return f"({', '.join(type_of(each) for each in schema['prefixItems'])})"
    if schema.get("type") == "array":
        return f"list of {type_of(schema['items'])}"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_of(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f'"{value}"' for value in schema["enum"])
    return str(schema.get("type", "any"))


def meaning_of(schema: dict[str, Any]) -> str:
    """Return what a field means, what is allowed and what stands for one that is left out."""
    descriptions = [_sentence(each) for each in _told(schema)]
    limits = [f"{each}." for part in _parts(schema) if (each := _limits(part))]
    default = schema.get("default")
    if default not in (None, "", [], {}, False):
        limits.append(f"{json.dumps(default)} if left out.")
    return " ".join([*descriptions, *limits])


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _told(schema: dict[str, Any]) -> list[str]:
    """Descriptions of a field, the outer one first: a type that has one keeps it in a union."""
    found = (part["description"] for part in _parts(schema) if "description" in part)
    return list(dict.fromkeys(found))


def _parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [schema, *(part for each in schema.get("anyOf", []) for part in _parts(each))]


def _limits(schema: dict[str, Any]) -> str:
    if "exclusiveMaximum" in schema:
        schema = {**schema, "maximum": schema["exclusiveMaximum"] - 1}
    for lowest, highest, counted in _LIMITS:
        if highest in schema and "prefixItems" not in schema:
            return f"{schema.get(lowest, 0)}..{schema[highest]}{counted}"
    return ""

"""Reads parameters of a call: each is there, of its type and within its limits, or is refused."""

from collections.abc import Mapping
from typing import Any

from penstock.protocols.sqs.errors import SqsError


def text_of(parameters: Mapping[str, Any], name: str) -> str:
    """Return a text that must be there."""
    value = optional_text(parameters, name)
    if value is None:
        raise SqsError(
            SqsError.MISSING_PARAMETER, f"The request must contain the parameter {name}."
        )
    return value


def optional_text(parameters: Mapping[str, Any], name: str) -> str | None:
    """Return a text, or None when it is not given."""
    value = parameters.get(name)
    if value is not None and not isinstance(value, str):
        raise SqsError(SqsError.INVALID_PARAMETER, f"{name} is {value!r}, not a string")
    return value


def number_of(
    parameters: Mapping[str, Any], name: str, *, least: int, most: int, default: int | None = None
) -> int | None:
    """Return a whole number within its limits, or the default when it is not given."""
    value = parameters.get(name)
    if value is None:
        return default
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = least - 1
    if isinstance(value, (bool, float)) or not least <= number <= most:
        raise SqsError(
            SqsError.INVALID_PARAMETER,
            f"Value {value!r} for parameter {name} is invalid. Reason: must be between {least} and"
            f" {most}.",
        )
    return number


def texts_of(parameters: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts; one that is not given is empty."""
    value = parameters.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise SqsError(SqsError.INVALID_PARAMETER, f"{name} is not a list of strings")
    return value


def map_of(parameters: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a map of texts; one that is not given is empty."""
    value = parameters.get(name) or {}
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise SqsError(SqsError.INVALID_PARAMETER, f"{name} is not a map of strings")
    return value

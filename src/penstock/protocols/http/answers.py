"""The JSON that the HTTP door sends; the OpenAPI document is generated from these types."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class Health(Struct, frozen=True, kw_only=True):
    """The process is alive and answers."""

    status: Literal["alive"] = "alive"
    version: Annotated[str, Meta(description="Version of the package.")]
    node_id: Annotated[int, Meta(description="Number of the node in its cluster.")]
    uptime_s: Annotated[float, Meta(description="Seconds since the node started.")]


class Check(Struct, frozen=True, kw_only=True):
    """One condition that a ready node fulfils."""

    name: str
    passed: bool
    detail: Annotated[str, Meta(description="The values that decided, for people.")]


class Readiness(Struct, frozen=True, kw_only=True):
    """Whether the node should be sent traffic: true when every check passes."""

    ready: bool
    checks: list[Check]


class Failure(Struct, frozen=True, kw_only=True):
    """What went wrong."""

    type: Annotated[str, Meta(description="A fixed name that programs can compare.")]
    message: Annotated[str, Meta(description="What failed, with the values, for people.")]
    retryable: Annotated[bool, Meta(description="Whether the same request may succeed later.")]


class FailureAnswer(Struct, frozen=True, kw_only=True):
    """The body of every answer with a status of 400 or more, readiness excepted."""

    error: Failure

"""The OpenAPI 3.1 document of the HTTP door, generated from the types of its bodies."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from penstock.protocols.http.answers import FailureAnswer
from penstock.protocols.http.endpoints import BYTES, JSON, Answer, Endpoint, Parameter

SCHEMA_PATH = "#/components/schemas/{name}"


def describe(endpoints: Sequence[Endpoint], *, version: str) -> dict[str, Any]:
    """Build the document; it depends on nothing but its arguments."""
    types = list(_bodies(endpoints))
    schemas, components = msgspec.json.schema_components(types, ref_template=SCHEMA_PATH)
    references = dict(zip(types, schemas, strict=True))
    _leave_out_false_items(components)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, references)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version,
            "description": "Topics, messages, queue groups, dead letters, schedules and tasks;"
            " health, readiness and metrics of one node; and the operation of its cluster. Any node"
            " answers. Errors are JSON: a fixed type for programs, a sentence for people, and"
            " whether to try again.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _leave_out_false_items(schema: Any) -> None:
    """Take out `"items": false`, which tuples have, and which generators of clients stumble over.

    It says that nothing stands behind what `prefixItems` tells; so does `maxItems` beside it.
    """
    if isinstance(schema, dict):
        if schema.get("items") is False:
            assert schema["maxItems"] == len(schema["prefixItems"]), "the length is told twice"
            del schema["items"]
        for each in schema.values():
            _leave_out_false_items(each)
    elif isinstance(schema, list):
        for each in schema:
            _leave_out_false_items(each)


def _bodies(endpoints: Iterable[Endpoint]) -> Iterable[type]:
    bodies = [
        answer.body
        for endpoint in endpoints
        for answer in endpoint.answers.values()
        if answer.body is not None
    ]
    bodies += [endpoint.body for endpoint in endpoints if endpoint.body is not None]
    return dict.fromkeys([*bodies, FailureAnswer])


def _operation(endpoint: Endpoint, references: dict[type, dict[str, Any]]) -> dict[str, Any]:
    responses = {
        str(status): _response(answer, references) for status, answer in endpoint.answers.items()
    }
    failure = Answer(meaning="The request failed.", body=FailureAnswer)
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": endpoint.description,
    }
    if endpoint.parameters:
        operation["parameters"] = [_parameter(each) for each in endpoint.parameters]
    if endpoint.body is not None:
        operation["requestBody"] = _request_body(endpoint, references[endpoint.body])
    if endpoint.takes_bytes:
        schema = {"type": "string", "format": "binary"}
        operation["requestBody"] = {"required": True, "content": {BYTES: {"schema": schema}}}
    operation["responses"] = {**responses, "default": _response(failure, references)}
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.meaning,
        "required": parameter.place == "path",
        "schema": {"type": parameter.type},
    }


def _request_body(endpoint: Endpoint, schema: dict[str, Any]) -> dict[str, Any]:
    assert endpoint.body is not None
    fields = msgspec.structs.fields(endpoint.body)
    is_required = endpoint.needs_body or any(field.required for field in fields)
    content = {"schema": schema, "example": msgspec.json.decode(endpoint.example)}
    return {"required": is_required, "content": {JSON: content}}


def _response(answer: Answer, references: dict[type, dict[str, Any]]) -> dict[str, Any]:
    schema = references[answer.body] if answer.body else {"type": "string"}
    media_type = JSON if answer.body else answer.media_type
    return {"description": answer.meaning, "content": {media_type: {"schema": schema}}}

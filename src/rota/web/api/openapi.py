"""OpenAPI document, generated from the operations so that it always matches the routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.operations.declare import Operation
from rota.web.api.router import PREFIX
from rota.web.responses import ErrorDocument

COMMON_ERRORS = {
    "400": "The request is malformed.",
    "401": "Unauthenticated: the request has no token, or an invalid one.",
    "403": "Forbidden: the token's role does not allow this, or the request came from another origin.",
    "408": "The body did not arrive before the timeout.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "422": "The request is well-formed but invalid.",
    "429": "Too many requests with this invalid token from this address.",
    "503": "The database is unavailable, or did not answer before the timeout.",
}
EXTRA_ERRORS = {
    "404": "The object does not exist.",
    "409": "The object's state does not allow this, or another transaction holds it.",
}
REF_TEMPLATE = "#/components/schemas/{name}"


def build_document(operations: Sequence[Operation[Any]], version: str) -> dict[str, Any]:
    types: list[Any] = [ErrorDocument]
    for each in operations:
        types += [kind for kind in (each.body, each.response) if _is_struct(kind)]
    _, components = msgspec.json.schema_components(types, ref_template=REF_TEMPLATE)
    paths: dict[str, Any] = {}
    for each in operations:
        path = PREFIX + each.path.replace(":path", "")
        paths.setdefault(path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rota",
            "version": version,
            "description": (
                "Durable jobs, flows and schedules. Ids are 64-bit integers, written as strings of "
                "digits; times are ISO 8601, durations seconds."
            ),
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`rota tokens create NAME --role viewer|operator|admin`",
                }
            },
        },
    }


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _operation(operation: Operation[Any]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"Requires the role {operation.role.text}.",
        "x-rota-role": operation.role.text,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation)],
        "responses": _responses(operation),
    }
    if operation.body is not None:
        fields = msgspec.structs.fields(operation.body)
        document["requestBody"] = {
            "required": any(each.required for each in fields),
            "content": {"application/json": {"schema": _ref(operation.body)}},
        }
    return document


def _path_parameters(operation: Operation[Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": msgspec.json.schema(kind)}
        for name, kind in operation.params.items()
    ]


def _query_parameters(operation: Operation[Any]) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = msgspec.json.schema(operation.query)
    [properties] = [each["properties"] for each in schema["$defs"].values()]
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(kind)}
        for name, kind in properties.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without null: a query parameter is present or absent, never null."""
    non_null = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    found = non_null[0] if len(non_null) == 1 else schema
    if None in found.get("enum", ()):
        found = {**found, "enum": [each for each in found["enum"] if each is not None]}
    return {key: value for key, value in found.items() if key != "default" or value is not None}


def _responses(operation: Operation[Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done."}
    if _is_struct(operation.response):
        success["content"] = {"application/json": {"schema": _ref(operation.response)}}
    error_content = {"application/json": {"schema": _ref(ErrorDocument)}}
    errors = {
        **COMMON_ERRORS,
        **{str(code): EXTRA_ERRORS[str(code)] for code in operation.error_statuses},
    }
    responses = {str(each): success for each in operation.success_statuses}
    for code, description in sorted(errors.items()):
        responses[code] = {"description": description, "content": error_content}
    return responses


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": REF_TEMPLATE.format(name=kind.__name__)}

"""The operations of the HTTP API, from its OpenAPI document."""

from __future__ import annotations

import re
from typing import Any

from rota.web.api import openapi

from .prose import made, table

WORDS = """\
All operations under `/api/v1`, from the OpenAPI document (`GET /api/v1/openapi.json`).
[The guide](../guides/http-api.md) describes authentication, the JSON format and the errors. Every operation
can also return 401, 403, 429 or 503."""

TITLES = {
    "runs": "Runs",
    "schedules": "Schedules",
    "fleet": "Fleet",
    "people": "Access",
}
USUAL = {"200", "201", "202", "204", "400", "401", "403", "408", "413", "415", "429", "503"}


def page() -> str:
    document = openapi()
    schemas = document["components"]["schemas"]
    parts: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            [tag] = operation["tags"]
            parts.setdefault(tag, []).append(_operation(method, path, operation, schemas))
    sections = [
        f"## {TITLES.get(tag, tag.capitalize())}\n\n" + "\n\n".join(each)
        for tag, each in parts.items()
    ]
    overview = table(
        ["request", "operation", "role", "effect"],
        [
            [
                f"[`{method.upper()} {path}`](#{_anchor(method, path)})",
                f"`{said['operationId']}`",
                said["x-rota-role"],
                said["summary"],
            ]
            for path, methods in document["paths"].items()
            for method, said in methods.items()
        ],
    )
    return made("HTTP API", WORDS, [overview, *sections, "## Documents", *_documents(schemas)])


def _anchor(method: str, path: str) -> str:
    """Return the anchor of an operation's heading, as the Markdown extension `toc` makes it."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", f"{method} {path}").strip().lower())


def _operation(method: str, path: str, said: dict[str, Any], schemas: dict[str, Any]) -> str:
    lines = [f"### {method.upper()} {path}", f"{said['summary']} Role: {said['x-rota-role']}."]
    rows = [
        [f"`{each['name']}`", each["in"], _type(each["schema"]), _words(each["schema"])]
        for each in said["parameters"]
    ]
    body = said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body:
        of = schemas[_name(body)]
        rows += [
            [f"`{name}`", "body" + _must(name, of), _type(each), _words(each)]
            for name, each in of.get("properties", {}).items()
        ]
    if rows:
        lines.append(table(["name", "in", "type", ""], rows))
    done = [code for code in said["responses"] if code[0] == "2"]
    answers = (
        said["responses"][done[0]].get("content", {}).get("application/json", {}).get("schema")
    )
    known = (
        f" [{_name(answers)}](#{_name(answers).lower()})" if answers and "$ref" in answers else ""
    )
    others = [
        f"{code} ({each['description'].rstrip('.').lower()})"
        for code, each in said["responses"].items()
        if code not in USUAL and code[0] != "2"
    ]
    lines.append(
        f"Returns {' or '.join(done)}{known}."
        + (f" Errors: {'; '.join(others)}." if others else "")
    )
    return "\n\n".join(lines)


def _documents(schemas: dict[str, Any]) -> list[str]:
    return [
        f"### {name}\n\n"
        + table(
            ["field", "type", ""],
            [[f"`{each}`", _type(of), _words(of)] for each, of in schema["properties"].items()],
        )
        for name, schema in schemas.items()
        if schema.get("properties")
    ]


def _must(name: str, of: dict[str, Any]) -> str:
    return ", required" if name in of.get("required", ()) else ""


def _name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[-1] if "$ref" in schema else ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"[{_name(schema)}](#{_name(schema).lower()})"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("format") or kind)


def _words(schema: dict[str, Any]) -> str:
    alternatives = [schema, *schema.get("anyOf", ())]
    words = [next((each["description"] for each in alternatives if "description" in each), "")]
    if schema.get("default") not in (None, "", [], {}):
        words.append(f"Default: `{schema['default']}`.")
    return " ".join(filter(None, words))

"""The public surface as lists of facts, without prose: `python -m tools.surface` rewrites the golden files.

    python.txt     importable names, parameters, fields
    cli.txt        commands, arguments, options, exit codes
    http.txt       paths, parameters, fields and types of the OpenAPI document
    settings.txt   settings and environment variables
    events.txt     events and their fields
    metrics.txt    metrics, kinds and labels
    schema.txt     tables, columns, views, functions, types

Each line is one fact. A test compares the files in `tests/unit/architecture/surface/` with the code, so
that no name changes unnoticed.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from tools.reference.api import PAGES

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "unit" / "architecture" / "surface"

MODULES = (
    "rota",
    "rota.asgi",
    "rota.contrib.fastapi",
    "rota.errors",
    "rota.localpg",
    "rota.logs",
    "rota.testing",
    "rota.web",
    "rota.web.health",
    "rota.web.site",
)


# Python


def python() -> Iterator[str]:
    for name in MODULES:
        module = importlib.import_module(name)
        for each in sorted(getattr(module, "__all__", None) or _own(module)):
            yield from _object(f"{name}.{each}", getattr(module, each))
    # Classes that users get from a call and do not import.
    for place in (place for page in PAGES for place in page.of):
        name, _, each = place.partition(":")
        if name not in MODULES:
            yield from _object(each, getattr(importlib.import_module(name), each))


def _own(module: Any) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def _object(path: str, value: Any) -> Iterator[str]:
    if not inspect.isclass(value):
        if callable(value):
            yield from _signature(path, value)
        else:
            yield path
        return
    yield f"class {path}({', '.join(base.__name__ for base in value.__bases__ if base is not object)})"
    if issubclass(value, enum.Enum):
        yield from (f"{path}.{member.name}" for member in value)
        return
    if not issubclass(value, BaseException):
        yield from _signature(path, value)
    for name in sorted(dir(value)):
        if not name.startswith("_") and _is_ours(value, name):
            member = inspect.getattr_static(value, name)
            if isinstance(member, staticmethod | classmethod):
                member = member.__func__
            if inspect.isfunction(member):
                yield from _signature(f"{path}.{name}", member)
            else:
                yield f"{path}.{name}"


def _is_ours(kind: type, name: str) -> bool:
    owner = next((each for each in kind.__mro__ if name in vars(each)), None)
    return owner is not None and owner.__module__.startswith("rota")


def _signature(path: str, function: Callable[..., Any]) -> Iterator[str]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        yield path
        return
    awaited = "async " if inspect.iscoroutinefunction(function) else ""
    yield f"{awaited}{path}()"
    for each in signature.parameters.values():
        if each.name not in ("self", "cls"):
            mark = "*" if each.kind is each.VAR_POSITIONAL else ""
            mark = "**" if each.kind is each.VAR_KEYWORD else mark
            only = ", keyword" if each.kind is each.KEYWORD_ONLY else ""
            default = ", optional" if each.default is not each.empty else ""
            yield f"{path}({mark}{each.name}){only}{default}"


# Command line


def cli() -> Iterator[str]:
    from rota.cli.exit_codes import EXIT_CODE_MEANINGS
    from rota.cli.main import PANELS
    from rota.cli.main import cli as root

    for title, names in PANELS.items():
        yield from (f"{title}: {name}" for name in names)
    yield from _command(root, "rota")
    yield from (f"exit code {code}" for code in EXIT_CODE_MEANINGS)


def _command(command: click.Command, path: str) -> Iterator[str]:
    yield path
    for each in command.params:
        if isinstance(each, click.Option):
            value = "" if each.is_flag or each.count else f" {_kind(each.type)}"
            many = " (repeatable)" if each.multiple else ""
            for name in (*each.opts, *each.secondary_opts):
                yield f"{path} {name}{value}{many}"
        else:
            count = "…" if each.nargs == -1 else ""
            need = "" if each.required else " (optional)"
            yield f"{path} <{each.metavar or each.name}>{count}{need}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _command(below, f"{path} {name}")


def _kind(kind: Any) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(str(each) for each in kind.choices)
    return str(kind.name)


# HTTP


def http() -> Iterator[str]:
    from rota.web.api import openapi

    document = openapi()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            yield name
            for each in operation.get("parameters", ()):
                need = "" if each.get("required") else " (optional)"
                yield f"{name} {each['in']} {each['name']}: {_type(each['schema'])}{need}"
            body = operation.get("requestBody")
            if body:
                yield f"{name} body: {_type(_json(body))}"
            for status, answer in operation["responses"].items():
                content = _json(answer)
                yield f"{name} {status}{': ' + _type(content) if content else ''}"
    for name, schema in document["components"]["schemas"].items():
        for field, kind in schema.get("properties", {}).items():
            need = "" if field in schema.get("required", ()) else " (optional)"
            yield f"{name}.{field}: {_type(kind)}{need}"


def _json(part: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = part.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return "|".join(str(each) for each in schema["enum"])
    if schema.get("type") == "array":
        return f"[{_type(schema.get('items', {}))}]"
    return str(schema.get("format") or schema.get("type") or "any")


# Settings, events, metrics


def settings() -> Iterator[str]:
    from rota.model.settings import Settings

    for each in dataclasses.fields(Settings):
        yield f"{each.name}: {type(each.default).__name__} = {each.default!r}"
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src" / "rota").rglob("*.py"))
    yield from set(re.findall(r"""["'](ROTA_[A-Z_]*[A-Z])["']""", sources))


def events() -> Iterator[str]:
    from rota.model.events import Event

    for event in Event.__subclasses__():
        fields = (
            [each.name for each in msgspec.structs.fields(event)]
            if issubclass(event, msgspec.Struct)
            else [each.name for each in dataclasses.fields(event)]
        )
        yield event.__name__
        yield from (f"{event.__name__}.{field}" for field in fields)


def metrics() -> Iterator[str]:
    from rota.web import metric_definitions as defined

    for families in (value for value in vars(defined).values() if isinstance(value, dict)):
        for name, family in families.items():
            if isinstance(family, defined.MetricFamily):
                yield f"{name}: {family.kind} ({', '.join(family.labels)})"


# Schema


def schema() -> Iterator[str]:
    dumped = (ROOT / "src" / "rota" / "store" / "schema.sql").read_text("utf-8")
    for kind in ("table", "view"):
        body = rf"^create {kind} (rota\.\w+) \(\n(.*?)^\)"
        for name, inside in re.findall(body, dumped, re.DOTALL | re.MULTILINE):
            yield f"{kind} {name}"
            for line in inside.splitlines():
                if not line.lstrip().startswith("constraint "):
                    column, _, type_name = line.strip().rstrip(",").partition(" ")
                    type_name = re.split(
                        r" (?:not null|default|collate|generated|storage)\b", type_name
                    )[0]
                    yield f"{kind} {name}.{column}: {type_name}"
    for name, inside in re.findall(
        r"^create function (rota\.\w+)\((.*?)\)(?: returns|\n)", dumped, re.DOTALL | re.MULTILINE
    ):
        yield f"function {name}({' '.join(inside.split())})"
    yield from re.findall(r"^create type (.*);$", dumped, re.MULTILINE)
    yield from (
        f"sequence {name}" for name in re.findall(r"^create sequence (\S+)", dumped, re.MULTILINE)
    )
    yield from (
        f"channel {name}"
        for name in sorted(
            {
                found
                for path in (ROOT / "src" / "rota").rglob("*.sql")
                for found in re.findall(r"pg_notify\('(rota\.[\w.]+)'", path.read_text("utf-8"))
            }
        )
    )


SURFACES: dict[str, Callable[[], Iterator[str]]] = {
    "python": python,
    "cli": cli,
    "http": http,
    "settings": settings,
    "events": events,
    "metrics": metrics,
    "schema": schema,
}


def facts(surface: str) -> str:
    return "".join(f"{line}\n" for line in sorted(set(SURFACES[surface]())))


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name in SURFACES:
        path = GOLDEN / f"{name}.txt"
        new = facts(name)
        if not path.exists() or path.read_text("utf-8") != new:
            path.write_text(new, "utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

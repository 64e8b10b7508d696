"""Tables, views, types and functions of schema `rota`, from the schema dump and its comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .prose import made, table

WORDS = """\
All objects are in one schema: `rota`, or the one that `ROTA_SCHEMA` names. The **views** and the **public
functions** are stable. Tables may change between versions. You can read them, but do not write to them: the
engine depends on their contents. [How it works](../explanation/how-it-works.md) describes their use."""

PUBLIC = (
    "start",
    "cancel",
    "retry",
    "signal",
    "release",
    "drain",
    "assert_claim",
    "assert_lock",
    "assert_term",
    "desired_workers",
    "clock",
)
"""Public functions in the order of the page."""

TABLE = re.compile(r"^create table rota\.(\w+) \(\n(.*?)^\)", re.MULTILINE | re.DOTALL)
VIEW = re.compile(r"^create view rota\.(\w+) \(\n(.*?)^\) as$", re.MULTILINE | re.DOTALL)
ENUM = re.compile(r"^create type rota\.(\w+) as enum \((.*?)\);", re.MULTILINE)
FUNCTION = re.compile(
    r"^create function rota\.(\w+)\((.*?)\)(?: returns ([^\n]+))?\nlanguage",
    re.MULTILINE | re.DOTALL,
)
COMMENT = re.compile(
    r"^comment on \w+ rota\.(\S+) is\s+('(?:[^']|'')*'(?:\s+'(?:[^']|'')*')*);", re.MULTILINE
)
JOINT = re.compile(r"'\s+'")


def page(store: Path) -> str:
    golden = (store / "schema.sql").read_text("utf-8")
    return made("Tables, views, functions", WORDS, _parts(golden, _comments(golden)))


def _comments(golden: str) -> dict[str, str]:
    """Return the comment of each object and column, such as `jobs` and `jobs.id`."""
    return {
        name: JOINT.sub("", literals)[1:-1].replace("''", "'")
        for name, literals in COMMENT.findall(golden)
    }


def _parts(golden: str, comments: dict[str, str]) -> Iterator[str]:
    yield "## Views"
    for name, inside in VIEW.findall(golden):
        yield f"### rota.{name}"
        yield comments[name]
        yield table(["column", "type", "meaning"], _columns(name, inside, comments))
    yield "## Public functions"
    found = {name: (takes, gives) for name, takes, gives in FUNCTION.findall(golden)}
    for name in PUBLIC:
        takes, gives = found[name]
        lines = ",\n    ".join(part.strip() for part in takes.split(",\n") if part.strip())
        answers = f" returns {gives}" if gives else ""
        yield f"### rota.{name}"
        yield comments[name].removesuffix(" Public and stable.")
        yield f"```sql\nrota.{name}({lines}){answers}\n```"
    yield "## Tables"
    for name, inside in TABLE.findall(golden):
        yield f"### rota.{name}"
        yield comments[name]
        yield table(["column", "type", "meaning"], _columns(name, inside, comments))
    yield "## Types"
    yield table(
        ["type", "values", "meaning"],
        [
            [f"`rota.{name}`", values.replace("'", "`"), comments[name]]
            for name, values in ENUM.findall(golden)
        ],
    )
    yield "## Functions of the engine"
    yield "Used by the engine's own statements. They may change with every version."
    yield table(
        ["function", "meaning"],
        [[f"`rota.{name}`", comments[name]] for name in sorted(found) if name not in PUBLIC],
    )


def _columns(name: str, inside: str, comments: dict[str, str]) -> Iterator[list[str]]:
    for line in inside.strip().splitlines():
        column, *rest = line.strip().rstrip(",").split(" ")
        if column != "constraint":
            kind = " ".join(rest).replace("timestamp with time zone", "timestamptz")
            kind = re.sub(r' collate "C"| storage external', "", kind)
            yield [f"`{column}`", kind, comments[f"{name}.{column}"]]

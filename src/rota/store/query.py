"""A store operation is a value: a statement, its parameters, and what a row of its answer is.

The same value runs on our own connections, sync or async, and on whatever connection a user hands to
`options(on=…)`, so no operation is written twice.

Statements are files under `sql/`, with tables written `rota.jobs` in full so that a file can be read,
run and explained as it stands. Another schema's name is put in when the file is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Generic, TypeVar

from rota.errors import SettingsError

Row = TypeVar("Row")

MAX_CHARACTER = "\U0010ffff"
"""Of texts that begin in the same way, none comes after that and this."""

_SCHEMA = re.compile(r"\brota\.")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_PARAMETER = re.compile(r"%\((\w+)\)[bs](::\w+\[\])?")


@dataclass(frozen=True, slots=True)
class Query(Generic[Row]):
    """One statement by its name, its parameters, and how a row is read."""

    statement: str
    params: Mapping[str, Any]
    row: Callable[..., Row]

    def read(self, rows: Sequence[Sequence[Any]]) -> list[Row]:
        return [self.row(*row) for row in rows]


def check_schema(name: str) -> str:
    """The name of a schema, refused unless it needs no quoting anywhere."""
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"schema name {name!r} cannot be used: lower-case letters, digits and _, "
            "starting with a letter, at most 41 of them"
        )
    return name


def in_schema(text: str, schema: str) -> str:
    """A text about schema `rota`, about another schema."""
    return _SCHEMA.sub(f"{schema}.", text)


@cache
def load(statement: str, schema: str) -> str:
    """The text of a statement, for a schema."""
    path = resources.files("rota.store") / "sql" / f"{statement}.sql"
    return in_schema(path.read_text("utf-8"), schema)


@cache
def load_all(schema: str) -> None:
    """Read every statement now, while files can be opened."""
    root = resources.files("rota.store") / "sql"
    for folder in root.iterdir():
        if folder.is_dir():
            for file in folder.iterdir():
                if file.name.endswith(".sql"):
                    encoded(f"{folder.name}/{file.name.removesuffix('.sql')}", schema)


@cache
def encoded(statement: str, schema: str) -> bytes:
    return load(statement, schema).encode()


@cache
def positional(
    statement: str, schema: str, literals: frozenset[str] = frozenset()
) -> tuple[str, tuple[str, ...]]:
    """A statement with $1, $2, … and the names of its parameters in that order. `literals`: those that are
    text; where an array is wanted, it is one written out, and who knows only the type would want a list."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name, array = match[1], match[2] or ""
        if name not in names:
            names.append(name)
        cast = "::text" if array and name in literals else ""
        return f"${names.index(name) + 1}{cast}{array}"

    return _PARAMETER.sub(number, load(statement, schema)), tuple(names)

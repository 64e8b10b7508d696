"""Store operations as values: a statement, its parameters and the type of a row.

The same value runs on Rota's connections, sync or async, and on a connection that a user passes to
`options(on=…)`, so that no operation is written twice.

Statements are files under `sql/`. They name tables in full (`rota.jobs`), so that a file can be read,
run and explained unchanged. The name of another schema is inserted when a file is loaded.

Most functions of the store are declared with the name of the file and the type of a row:

    @statement("queue/pause", bool)
    def pause(queue: str, operator: str, reason: str) -> None: ...

A statement that is needed in both directions is written once, as in `order by jobs.id desc /*|asc*/`. The
name of the file followed by `REVERSED` loads it with the words in the comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from importlib import resources
from inspect import signature
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from rota.errors import SettingsError

Row = TypeVar("Row")
P = ParamSpec("P")
Params = Mapping[str, Any]

MAX_CHARACTER = "\U0010ffff"
"""A prefix followed by this character sorts after every text with that prefix."""

REVERSED = ":reversed"
"""Ending of the name of a statement that is loaded in the other direction."""

_REVERSIBLE = re.compile(r"\S+ /\*\|(.+?)\*/")
_SCHEMA = re.compile(r"\brota\.")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_PARAMETER = re.compile(r"%\((\w+)\)[bs](::\w+\[\])?")


class Query(msgspec.Struct, Generic[Row], frozen=True):
    """Statement by name, its parameters, and the callable that reads a row."""

    statement: str
    params: Params
    row: Callable[..., Row]

    def read(self, rows: Sequence[Sequence[Any]]) -> list[Row]:
        return [self.row(*row) for row in rows]


def identity(value: Row) -> Row:
    """Read a row of one column whose value may be None."""
    return value


def no_row(*_: Any) -> None:
    """Read the row of a statement that is run for its effect."""


def statement(
    name: str, row: Callable[..., Row]
) -> Callable[[Callable[P, Params | None]], Callable[P, Query[Row]]]:
    """Declare a function that returns a query with its own arguments as parameters.

    The decorated function returns the parameters that are computed; None if there are none. Arguments that
    the statement does not name have no effect. A function that runs once a job creates its `Query` itself.
    """

    def declare(function: Callable[P, Params | None]) -> Callable[P, Query[Row]]:
        defaults = {each.name: each.default for each in signature(function).parameters.values()}

        @wraps(function)
        def query(*args: P.args, **kwargs: P.kwargs) -> Query[Row]:
            computed = function(*args, **kwargs)
            params: dict[str, Any] = defaults | kwargs
            params.update(zip(defaults, args, strict=False))
            if computed is not None:
                params.update(computed)
            for key, value in params.items():
                # Drivers send a list as an array, but a tuple as a row.
                if isinstance(value, (list, tuple)):
                    params[key] = [*value]
            return Query(name, params, row)

        return query

    return declare


def check_schema(name: str) -> str:
    """Return the schema's name. Raise SettingsError if it would need quoting."""
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"schema name {name!r} cannot be used: lower-case letters, digits and _, "
            "starting with a letter, at most 41 of them"
        )
    return name


def in_schema(text: str, schema: str) -> str:
    """Return a text with references to schema `rota` replaced by another schema."""
    return _SCHEMA.sub(f"{schema}.", text)


@cache
def load(statement: str, schema: str) -> str:
    """Return the text of a statement for a schema."""
    name = statement.removesuffix(REVERSED)
    text = (resources.files("rota.store") / "sql" / f"{name}.sql").read_text("utf-8")
    if statement.endswith(REVERSED):
        text = _REVERSIBLE.sub(r"\1", text)
    return in_schema(text, schema)


@cache
def load_all(schema: str) -> None:
    """Load every statement now, while files can be opened."""
    root = resources.files("rota.store") / "sql"
    for folder in root.iterdir():
        if folder.is_dir():
            for file in folder.iterdir():
                if file.name.endswith(".sql"):
                    statement = f"{folder.name}/{file.name.removesuffix('.sql')}"
                    if _REVERSIBLE.search(load(statement, schema)):
                        encoded(statement + REVERSED, schema)
                    encoded(statement, schema)


@cache
def encoded(statement: str, schema: str) -> bytes:
    return load(statement, schema).encode()


@cache
def positional(
    statement: str, schema: str, literals: frozenset[str] = frozenset()
) -> tuple[str, tuple[str, ...]]:
    """Return a statement with $1, $2, … and the names of its parameters in that order.

    `literals` are the parameters passed as text. Where the statement expects an array, such a parameter
    is an array literal; it is cast from text, because a driver that infers the type would expect a list.
    """
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name, array = match[1], match[2] or ""
        if name not in names:
            names.append(name)
        cast = "::text" if array and name in literals else ""
        return f"${names.index(name) + 1}{cast}{array}"

    return _PARAMETER.sub(number, load(statement, schema)), tuple(names)

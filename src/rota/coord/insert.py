"""Rows that are written once, whoever comes with them, and how often: and who comes first is told which.

On a connection of the user's, in his transaction: what he does about the rows that are new commits with
them, or not at all. Somebody else who has them in a transaction that is still open is waited for. All write
in the same order, so that two who come with the same rows do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from rota.errors import ArgumentError
from rota.store import failures
from rota.store.inserts import Insertion, quoted
from rota.store.on import Rows, is_async, say_on

Given = Iterable[Mapping[str, Any]]

WHAT = "insert_once"

MOST_ROWS = 1000
MOST_VALUES = 20_000
"""In one statement. PostgreSQL takes 65,535 parameters."""


class Inserted(msgspec.Struct, frozen=True):
    """What became of the rows."""

    inserted: int
    duplicates: int
    """Of those that were given: there before, or given twice."""
    new: list[tuple[Any, ...]]
    """The conflict columns of those that were inserted."""


async def insert_once(
    connection: Any, table: str | Sequence[str], rows: Given, conflict: Sequence[str]
) -> Inserted:
    statements = _inserting(table, rows, conflict)
    try:
        statement = next(statements)
        while True:
            with _in_our_words(statement):
                answer = say_on(connection, statement, WHAT)
                written = await answer if isinstance(answer, Awaitable) else answer
            statement = statements.send(written)
    except StopIteration as end:
        done: Inserted = end.value
        return done


def insert_once_blocking(
    connection: Any, table: str | Sequence[str], rows: Given, conflict: Sequence[str]
) -> Inserted:
    if is_async(connection, WHAT):
        raise ArgumentError(
            "a blocking insert_once cannot use an async connection: await app.insert_once(…)"
        )
    statements = _inserting(table, rows, conflict)
    try:
        statement = next(statements)
        while True:
            with _in_our_words(statement):
                answer = say_on(connection, statement, WHAT)
                assert not isinstance(answer, Awaitable)
            statement = statements.send(answer)
    except StopIteration as end:
        done: Inserted = end.value
        return done


def _inserting(
    table: str | Sequence[str], given: Given, conflict: Sequence[str]
) -> Generator[Insertion, Rows, Inserted]:
    """The statements, one after another; each is sent what it answered."""
    where = _table(table)
    if isinstance(conflict, str) or not conflict:
        raise ArgumentError(
            f"conflict is a list of the columns that tell rows apart, not {conflict!r}"
        )
    target = tuple(_name(name, "a column") for name in conflict)
    rows = list(given)
    columns = _columns(rows)
    known = [name for name in target if name in columns]
    # By what tells them apart, and the same way everywhere.
    ordered = sorted(rows, key=lambda row: [repr(row[name]) for name in known])
    many = max(min(MOST_ROWS, MOST_VALUES // max(len(columns), 1)), 1)
    new: list[tuple[Any, ...]] = []
    for at in range(0, len(ordered), many):
        values = [[row[name] for name in columns] for row in ordered[at : at + many]]
        written = yield Insertion(where, columns, target, values)
        new += [tuple(row) for row in written]
    if len(known) == len(target):
        _as_given(new, [tuple(row[name] for name in target) for row in rows])
    return Inserted(len(new), len(rows) - len(new), new)


def _table(table: str | Sequence[str]) -> tuple[str, ...]:
    parts = table.split(".") if isinstance(table, str) else list(table)
    if len(parts) > 2:
        raise ArgumentError(
            f'table is "table" or "schema.table", not {table!r}; a name with a dot in it is given as '
            '("schema", "table")'
        )
    return tuple(_name(part, "a table") for part in parts)


def _columns(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    if not rows:
        return ()
    columns = tuple(_name(name, "a column") for name in rows[0])
    if not columns:
        raise ArgumentError("the rows have no columns")
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            differ = sorted(row.keys() ^ rows[0].keys())
            raise ArgumentError(
                f"all rows have the same columns; row {number} differs from row 0 in {', '.join(differ)}"
            )
    return columns


def _name(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name or "\0" in name:
        raise ArgumentError(f"{name!r:.60} is not the name of {what}")
    return name


def _as_given(new: list[tuple[Any, ...]], given: Sequence[tuple[Any, ...]]) -> None:
    """Put them in the order in which they were given, if the database gives values back as they came."""
    try:
        place = {key: at for at, key in reversed(list(enumerate(given)))}
        new.sort(key=place.__getitem__)
    except (KeyError, TypeError):
        return


@contextmanager
def _in_our_words(statement: Insertion) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if failures.sqlstate(error) != "42P10":
            raise
        raise ArgumentError(
            f"nothing says what a duplicate is in {quoted(*statement.table)}, for want of a unique index "
            f"on just these columns; {statement.index()}"
        ) from error

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
from rota.store import pg_errors
from rota.store.insert_once import InsertStatement, quoted
from rota.store.user_connection import Rows, execute_on, is_async

InputRows = Iterable[Mapping[str, Any]]

API_NAME = "insert_once"

MAX_ROWS = 1000
MAX_VALUES = 20_000
"""In one statement. PostgreSQL takes 65,535 parameters."""


class Inserted(msgspec.Struct, frozen=True):
    """What became of the rows."""

    inserted: int
    duplicates: int
    """Of those that were given: there before, or given twice."""
    new: list[tuple[Any, ...]]
    """The conflict columns of those that were inserted."""


async def insert_once(
    connection: Any, table: str | Sequence[str], rows: InputRows, conflict: Sequence[str]
) -> Inserted:
    statements = _statements(table, rows, conflict)
    try:
        statement = next(statements)
        while True:
            with _translated_errors(statement):
                answer = execute_on(connection, statement, API_NAME)
                returned = await answer if isinstance(answer, Awaitable) else answer
            statement = statements.send(returned)
    except StopIteration as end:
        result: Inserted = end.value
        return result


def insert_once_sync(
    connection: Any, table: str | Sequence[str], rows: InputRows, conflict: Sequence[str]
) -> Inserted:
    if is_async(connection, API_NAME):
        raise ArgumentError(
            "a blocking insert_once cannot use an async connection: await app.insert_once(…)"
        )
    statements = _statements(table, rows, conflict)
    try:
        statement = next(statements)
        while True:
            with _translated_errors(statement):
                answer = execute_on(connection, statement, API_NAME)
                assert not isinstance(answer, Awaitable)
            statement = statements.send(answer)
    except StopIteration as end:
        result: Inserted = end.value
        return result


def _statements(
    table: str | Sequence[str], input_rows: InputRows, conflict: Sequence[str]
) -> Generator[InsertStatement, Rows, Inserted]:
    """The statements, one after another; each is sent what it answered."""
    table_parts = _parse_table(table)
    if isinstance(conflict, str) or not conflict:
        raise ArgumentError(
            f"conflict is a list of the columns that tell rows apart, not {conflict!r}"
        )
    target = tuple(_validate_name(name, "a column") for name in conflict)
    rows = list(input_rows)
    columns = _read_columns(rows)
    sort_columns = [name for name in target if name in columns]
    # By what tells them apart, and the same way everywhere.
    ordered = sorted(rows, key=lambda row: [repr(row[name]) for name in sort_columns])
    batch_size = max(min(MAX_ROWS, MAX_VALUES // max(len(columns), 1)), 1)
    new: list[tuple[Any, ...]] = []
    for start in range(0, len(ordered), batch_size):
        values = [[row[name] for name in columns] for row in ordered[start : start + batch_size]]
        returned = yield InsertStatement(table_parts, columns, target, values)
        new += [tuple(row) for row in returned]
    if len(sort_columns) == len(target):
        _restore_order(new, [tuple(row[name] for name in target) for row in rows])
    return Inserted(len(new), len(rows) - len(new), new)


def _parse_table(table: str | Sequence[str]) -> tuple[str, ...]:
    parts = table.split(".") if isinstance(table, str) else list(table)
    if len(parts) > 2:
        raise ArgumentError(
            f'table is "table" or "schema.table", not {table!r}; a name with a dot in it is given as '
            '("schema", "table")'
        )
    return tuple(_validate_name(part, "a table") for part in parts)


def _read_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    if not rows:
        return ()
    columns = tuple(_validate_name(name, "a column") for name in rows[0])
    if not columns:
        raise ArgumentError("the rows have no columns")
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            differ = sorted(row.keys() ^ rows[0].keys())
            raise ArgumentError(
                f"all rows have the same columns; row {number} differs from row 0 in {', '.join(differ)}"
            )
    return columns


def _validate_name(name: Any, kind: str) -> str:
    if not isinstance(name, str) or not name or "\0" in name:
        raise ArgumentError(f"{name!r:.60} is not the name of {kind}")
    return name


def _restore_order(new: list[tuple[Any, ...]], input_keys: Sequence[tuple[Any, ...]]) -> None:
    """Put them in the order in which they were given, if the database gives values back as they came."""
    try:
        position = {key: index for index, key in reversed(list(enumerate(input_keys)))}
        new.sort(key=position.__getitem__)
    except (KeyError, TypeError):
        return


@contextmanager
def _translated_errors(statement: InsertStatement) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if pg_errors.sqlstate(error) != "42P10":
            raise
        raise ArgumentError(
            f"nothing says what a duplicate is in {quoted(*statement.table)}, for want of a unique index "
            f"on just these columns; {statement.unique_index()}"
        ) from error

"""Rows that are inserted once, however often they are passed in; the result lists the new ones.

The statements run on a connection of the user, in the user's transaction: the user's work for the new
rows commits together with them, or not at all. A row that another open transaction has inserted is
waited for. Rows are written in the same order everywhere, so two transactions with the same rows do not
deadlock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from rota.errors import ArgumentError
from rota.store import pg_errors
from rota.store.insert_once import InsertStatement, quoted
from rota.store.user_connection import Rows, execute_on, is_async, run_sync

InputRows = Iterable[Mapping[str, Any]]

API_NAME = "insert_once"

MAX_ROWS = 1000
MAX_VALUES = 20_000
"""Rows and values of one statement. PostgreSQL accepts 65,535 parameters."""


class Inserted(msgspec.Struct, frozen=True):
    """Result of `insert_once`."""

    inserted: int
    duplicates: int
    """Number of given rows that existed before or were given twice."""
    new: list[tuple[Any, ...]]
    """Conflict columns of the inserted rows."""


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
    return run_sync(insert_once(connection, table, rows, conflict))


def _statements(
    table: str | Sequence[str], input_rows: InputRows, conflict: Sequence[str]
) -> Generator[InsertStatement, Rows, Inserted]:
    """Yield the statements one after another; the caller sends the rows that each returned."""
    table_parts = _parse_table(table)
    if isinstance(conflict, str) or not conflict:
        raise ArgumentError(
            f"conflict is a list of the columns that identify a row, not {conflict!r}"
        )
    target = tuple(_validate_name(name, "a column") for name in conflict)
    rows = list(input_rows)
    columns = _read_columns(rows)
    sort_columns = [name for name in target if name in columns]
    # Sorted by the conflict columns, in the same way everywhere.
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
    """Sort the new rows as they were given, if the database returned the values unchanged."""
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
            f"{quoted(*statement.table)} has no unique index on exactly these columns, so duplicates "
            f"cannot be detected; {statement.unique_index()}"
        ) from error

"""Statements on a user's connection: they commit or roll back with the user's transaction.

psycopg (sync and async), asyncpg, SQLAlchemy 2 (connections and sessions, sync and async) and Django are
recognised by their classes, without importing any of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from rota.errors import ArgumentError
from rota.store import pg_errors
from rota.store.query import Query, load, positional

Row = TypeVar("Row")
T = TypeVar("T")
Rows = Sequence[Sequence[Any]]

_SUPPORTED = (
    "a psycopg or asyncpg connection, a SQLAlchemy connection or session, or a Django connection"
)


class RenderedStatement(Protocol):
    """Statement with its parameters, in the two forms that drivers accept."""

    def formatted(self) -> tuple[str, Any]:
        """Return the statement with %s or %(name)s."""
        ...

    def numbered(self) -> tuple[str, Sequence[Any]]:
        """Return the statement with $1, $2, …"""
        ...


def run_on(connection: Any, query: Query[Row], schema: str) -> list[Row] | Awaitable[list[Row]]:
    """Run a query on a user's connection. Return its rows, or an awaitable of them."""
    with pg_errors.translated(schema):
        answer = execute_on(connection, _OwnStatement(query, schema))
    if isinstance(answer, Awaitable):
        return _read_async(answer, query, schema)
    return query.read(answer)


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine without an event loop. Its connection is synchronous, so it never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a coroutine on a synchronous connection waited")


def execute_on(
    connection: Any, statement: RenderedStatement, parameter: str = "options(on=…)"
) -> Rows | Awaitable[Rows]:
    """Run a statement on a user's connection.

    `parameter` is the name of the argument that the connection came from, for the error message.
    """
    return _executor_for(connection, parameter)(connection, statement)


def is_async(connection: Any, parameter: str = "options(on=…)") -> bool:
    """True if this connection is asynchronous."""
    return _executor_for(connection, parameter) in (_psycopg_async, _asyncpg, _sqlalchemy_async)


class _OwnStatement(msgspec.Struct, frozen=True):
    """Rendering of a `Query`."""

    query: Query[Any]
    schema: str

    def formatted(self) -> tuple[str, Any]:
        return load(self.query.statement, self.schema), dict(self.query.params)

    def numbered(self) -> tuple[str, Sequence[Any]]:
        params = self.query.params
        literals = frozenset(name for name, value in params.items() if isinstance(value, str))
        text, names = positional(self.query.statement, self.schema, literals)
        return text, [params[name] for name in names]


async def _read_async(answer: Awaitable[Rows], query: Query[Row], schema: str) -> list[Row]:
    with pg_errors.translated(schema):
        return query.read(await answer)


def _executor_for(
    connection: Any, parameter: str
) -> Callable[[Any, RenderedStatement], Rows | Awaitable[Rows]]:
    for cls in type(connection).__mro__:
        package, name = cls.__module__.split(".", 1)[0], cls.__name__
        match package, name:
            case "psycopg", "AsyncConnection":
                return _psycopg_async
            case "psycopg", "Connection":
                return _psycopg
            case "asyncpg", "Connection" | "PoolConnectionProxy":
                return _asyncpg
            case "sqlalchemy", "AsyncSession" | "AsyncConnection" | "async_scoped_session":
                return _sqlalchemy_async
            case "sqlalchemy", "Session" | "Connection" | "scoped_session":
                return _sqlalchemy
            case "django", "ConnectionProxy" | "BaseDatabaseWrapper":
                return _django
    raise ArgumentError(
        f"{parameter} takes {_SUPPORTED}, not a {type(connection).__module__}.{type(connection).__name__}"
    )


def _psycopg(connection: Any, statement: RenderedStatement) -> Rows:
    text, params = statement.formatted()
    cursor = connection.cursor(row_factory=_tuples())
    cursor.execute(text.encode(), params)
    rows: Rows = cursor.fetchall()
    return rows


async def _psycopg_async(connection: Any, statement: RenderedStatement) -> Rows:
    text, params = statement.formatted()
    cursor = connection.cursor(row_factory=_tuples())
    await cursor.execute(text.encode(), params)
    rows: Rows = await cursor.fetchall()
    return rows


async def _asyncpg(connection: Any, statement: RenderedStatement) -> Rows:
    text, params = statement.numbered()
    rows: Rows = await connection.fetch(text, *params)
    return rows


def _sqlalchemy(connection: Any, statement: RenderedStatement) -> Rows:
    # A session has a method that returns the connection of its transaction.
    sa_connection = connection.connection() if callable(connection.connection) else connection
    if sa_connection.dialect.paramstyle == "numeric_dollar":
        text, params = statement.numbered()
    else:
        text, params = statement.formatted()
    # SQLAlchemy takes a tuple as one set of parameters, and a list as several.
    params = params if isinstance(params, dict) else tuple(params)
    rows: Rows = sa_connection.exec_driver_sql(text, params).fetchall()
    return rows


async def _sqlalchemy_async(connection: Any, statement: RenderedStatement) -> Rows:
    rows: Rows = await connection.run_sync(_sqlalchemy, statement)
    return rows


def _django(connection: Any, statement: RenderedStatement) -> Rows:
    text, params = statement.formatted()
    with connection.cursor() as cursor:
        cursor.execute(text, params)
        rows: Rows = cursor.fetchall()
    return rows


def _tuples() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row

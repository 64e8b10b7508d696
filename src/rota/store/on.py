"""Queries on a connection of the user's: they commit or roll back with whatever else he does there.

psycopg (sync and async), asyncpg, SQLAlchemy 2 (connections and sessions, sync and async) and Django are
recognised by the class they come from, without importing any of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from rota.errors import ArgumentError
from rota.store import failures
from rota.store.query import Query, load, positional

Row = TypeVar("Row")
Rows = Sequence[Sequence[Any]]

_KNOWN = (
    "a psycopg or asyncpg connection, a SQLAlchemy connection or session, or a Django connection"
)


def run_on(connection: Any, query: Query[Row], schema: str) -> list[Row] | Awaitable[list[Row]]:
    """Run a query there. Answers its rows, or what has to be awaited for them."""
    ask = _way(connection)
    with failures.in_our_words(schema):
        answer = ask(connection, query, schema)
    if isinstance(answer, Awaitable):
        return _read_later(answer, query, schema)
    return query.read(answer)


def is_async(connection: Any) -> bool:
    """Whether this connection is awaited."""
    return _way(connection) in (_psycopg_async, _asyncpg, _sqlalchemy_async)


async def _read_later(answer: Awaitable[Rows], query: Query[Row], schema: str) -> list[Row]:
    with failures.in_our_words(schema):
        return query.read(await answer)


def _way(connection: Any) -> Callable[[Any, Query[Any], str], Rows | Awaitable[Rows]]:
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
        f"using(on=…) takes {_KNOWN}, not a {type(connection).__module__}.{type(connection).__name__}"
    )


def _psycopg(connection: Any, query: Query[Any], schema: str) -> Rows:
    cursor = connection.cursor(row_factory=_tuples())
    cursor.execute(load(query.statement, schema).encode(), query.params)
    rows: Rows = cursor.fetchall()
    return rows


async def _psycopg_async(connection: Any, query: Query[Any], schema: str) -> Rows:
    cursor = connection.cursor(row_factory=_tuples())
    await cursor.execute(load(query.statement, schema).encode(), query.params)
    rows: Rows = await cursor.fetchall()
    return rows


async def _asyncpg(connection: Any, query: Query[Any], schema: str) -> Rows:
    text, names = positional(query.statement, schema)
    rows: Rows = await connection.fetch(text, *(query.params[name] for name in names))
    return rows


def _sqlalchemy(connection: Any, query: Query[Any], schema: str) -> Rows:
    # A session lends the connection of its own transaction; a connection is one already.
    lent = connection.connection() if callable(connection.connection) else connection
    return _driver_sql(lent, query, schema)


async def _sqlalchemy_async(connection: Any, query: Query[Any], schema: str) -> Rows:
    rows: Rows = await connection.run_sync(_sqlalchemy, query, schema)
    return rows


def _driver_sql(connection: Any, query: Query[Any], schema: str) -> Rows:
    if connection.dialect.paramstyle == "numeric_dollar":
        text, names = positional(query.statement, schema)
        params: Any = tuple(query.params[name] for name in names)
    else:
        text, params = load(query.statement, schema), dict(query.params)
    rows: Rows = connection.exec_driver_sql(text, params).fetchall()
    return rows


def _django(connection: Any, query: Query[Any], schema: str) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(load(query.statement, schema), dict(query.params))
        rows: Rows = cursor.fetchall()
    return rows


def _tuples() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row

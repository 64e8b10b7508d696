"""Rows inserted once, on the user's own connection.

These tests connect past the pooler, because drivers prepare statements in their own ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rota import Rota
from rota.coord import insert_once
from rota.coord.insert_once import Inserted
from rota.errors import ArgumentError
from support.user_connections import asyncpg_connection, django_connection, sqlalchemy_url

Db = AsyncConnection[tuple[Any, ...]]
FILINGS = """
create table filings (id bigserial, source text not null, number int not null, title text,
                      unique (source, number))
"""


@pytest.fixture(autouse=True)
async def filings(db: Db) -> None:
    await db.execute(FILINGS)


def filing(number: int, source: str = "sec", title: str = "") -> dict[str, Any]:
    return {"source": source, "number": number, "title": title}


BY = ["source", "number"]
ROWS = [filing(3), filing(1), filing(2), filing(1, title="again")]
NEW = Inserted(3, 1, [("sec", 3), ("sec", 1), ("sec", 2)])
OLD = Inserted(0, 4, [])


async def stored(db: Db) -> list[tuple[Any, ...]]:
    cursor = await db.execute("select source, number from filings order by 1, 2")
    return await cursor.fetchall()


# Every kind of connection


async def with_psycopg_async(app: Rota, dsn: str) -> list[Inserted]:
    async with await AsyncConnection.connect(dsn) as connection:
        return [await app.insert_once(connection, "filings", ROWS, conflict=BY) for _ in range(2)]


async def with_psycopg_rows_as_dicts(app: Rota, dsn: str) -> list[Inserted]:
    async with await AsyncConnection.connect(dsn, row_factory=dict_row) as connection:
        return [await app.insert_once(connection, "filings", ROWS, conflict=BY) for _ in range(2)]


async def with_psycopg(app: Rota, dsn: str) -> list[Inserted]:
    with psycopg.connect(dsn) as connection:
        return [app.sync.insert_once(connection, "filings", ROWS, conflict=BY) for _ in range(2)]


async def with_psycopg_in_async_code(app: Rota, dsn: str) -> list[Inserted]:
    with psycopg.connect(dsn) as connection:
        return [await app.insert_once(connection, "filings", ROWS, conflict=BY) for _ in range(2)]


async def with_asyncpg(app: Rota, dsn: str) -> list[Inserted]:
    async with asyncpg_connection(dsn) as connection, connection.transaction():
        return [await app.insert_once(connection, "filings", ROWS, conflict=BY) for _ in range(2)]


async def with_a_sqlalchemy_session(app: Rota, dsn: str) -> list[Inserted]:
    engine = sa.create_engine(sqlalchemy_url(dsn, "psycopg"))
    with Session(engine) as session:
        done = [app.sync.insert_once(session, "filings", ROWS, conflict=BY) for _ in range(2)]
        session.commit()
    engine.dispose()
    return done


async def with_a_sqlalchemy_connection(app: Rota, dsn: str) -> list[Inserted]:
    engine = sa.create_engine(sqlalchemy_url(dsn, "psycopg"))
    with engine.begin() as own:
        done = [app.sync.insert_once(own, "filings", ROWS, conflict=BY) for _ in range(2)]
    engine.dispose()
    return done


async def with_an_async_session(app: Rota, dsn: str) -> list[Inserted]:
    return await _in_session(app, sqlalchemy_url(dsn, "psycopg"))


async def with_an_async_session_on_asyncpg(app: Rota, dsn: str) -> list[Inserted]:
    return await _in_session(app, sqlalchemy_url(dsn, "asyncpg"))


async def _in_session(app: Rota, url: sa.URL) -> list[Inserted]:
    engine = create_async_engine(url)
    async with AsyncSession(engine) as session:
        done = [await app.insert_once(session, "filings", ROWS, conflict=BY) for _ in range(2)]
        await session.commit()
    await engine.dispose()
    return done


async def with_django(app: Rota, dsn: str) -> list[Inserted]:
    def work() -> list[Inserted]:
        connection = django_connection(dsn)
        try:
            return [
                app.sync.insert_once(connection, "filings", ROWS, conflict=BY) for _ in range(2)
            ]
        finally:
            connection.close()

    return await asyncio.to_thread(work)


@pytest.mark.parametrize(
    "bring",
    [
        with_psycopg_async,
        with_psycopg_rows_as_dicts,
        with_psycopg,
        with_psycopg_in_async_code,
        with_asyncpg,
        with_a_sqlalchemy_session,
        with_a_sqlalchemy_connection,
        with_an_async_session,
        with_an_async_session_on_asyncpg,
        with_django,
    ],
    ids=lambda bring: bring.__name__,
)
async def test_insert_once_writes_and_returns_new_rows_in_given_order(
    bring: Callable[[Rota, str], Awaitable[list[Inserted]]], rota_app: Rota, direct_dsn: str, db: Db
) -> None:
    assert await bring(rota_app, direct_dsn) == [NEW, OLD]

    assert await stored(db) == [("sec", 1), ("sec", 2), ("sec", 3)]


async def test_insert_once_commits_and_rolls_back_with_the_transaction(
    rota_app: Rota, direct_dsn: str, db: Db
) -> None:
    async with await AsyncConnection.connect(direct_dsn) as connection:
        await rota_app.insert_once(connection, "filings", ROWS, conflict=BY)
        assert await stored(db) == []
        await connection.rollback()
        again = await rota_app.insert_once(connection, "filings", ROWS, conflict=BY)

    assert again == NEW
    assert len(await stored(db)) == 3


async def test_insert_once_overlapping_transactions_insert_each_row_once(
    rota_app: Rota, direct_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overlapping transactions insert the same rows one at a time, in opposite orders, without deadlock."""
    monkeypatch.setattr(insert_once, "MAX_ROWS", 1)

    async def bring(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        async with await AsyncConnection.connect(direct_dsn) as connection:
            return (await rota_app.insert_once(connection, "filings", rows, conflict=BY)).new

    for turn in range(5):
        rows = [filing(10 * turn + number) for number in range(10)]
        one, other = await asyncio.gather(bring(rows), bring(rows[::-1]))
        assert sorted(one + other) == [("sec", row["number"]) for row in rows]


# Names


EVIL = [
    'a"; drop table filings; --',
    "a'; drop table filings; --",
    "per%cent %s %(x)s",
    "{braces} $1 $$",
    "ünïcode \\ tab\t",
    "SELECT",
]


@pytest.mark.parametrize("evil", EVIL)
async def test_insert_once_special_characters_in_names_are_quoted(
    evil: str, rota_app: Rota, direct_dsn: str, db: Db
) -> None:
    from psycopg import sql

    create = sql.SQL("create schema {0}; create table {1} (id int, {0} text unique)")
    await db.execute(create.format(sql.Identifier(evil), sql.Identifier(evil, evil)))
    rows = [{"id": number, evil: f"{number} {evil}"} for number in (1, 2, 2)]

    async with asyncpg_connection(direct_dsn) as numbered:
        done = await rota_app.insert_once(numbered, (evil, evil), rows[:2], conflict=[evil])
    assert done == Inserted(2, 0, [(f"1 {evil}",), (f"2 {evil}",)])
    assert await rota_app.insert_once(db, (evil, evil), rows, conflict=[evil]) == Inserted(0, 3, [])
    assert await stored(db) == [], "nothing was dropped"


async def test_insert_once_schema_qualified_table_is_accepted(rota_app: Rota, db: Db) -> None:
    await db.execute("create schema other; create table other.t (id int unique)")

    done = await rota_app.insert_once(db, "other.t", [{"id": 1}, {"id": 1}], conflict=["id"])

    assert done == Inserted(1, 1, [(1,)])


# Values


async def test_insert_once_typed_values_are_passed_to_the_driver_unchanged(
    rota_app: Rota, db: Db
) -> None:
    await db.execute("create table things (id uuid unique, body jsonb, sizes int[], raw bytea)")
    mine = uuid4()
    row = {"id": mine, "body": Jsonb({"a": [1]}), "sizes": [1, 2], "raw": b"\x00\xff"}

    assert await rota_app.insert_once(db, "things", [row], conflict=["id"]) == Inserted(
        1, 0, [(mine,)]
    )
    cursor = await db.execute("select * from things")
    assert await cursor.fetchall() == [(mine, {"a": [1]}, [1, 2], b"\x00\xff")]


async def test_insert_once_values_with_sql_text_are_stored_as_values(
    rota_app: Rota, db: Db
) -> None:
    rows = [filing(1, source="'); drop table filings; --"), filing(2, source="%s")]

    assert (await rota_app.insert_once(db, "filings", rows, conflict=BY)).inserted == 2
    assert len(await stored(db)) == 2


async def test_insert_once_returns_keys_as_stored_by_the_database(rota_app: Rota, db: Db) -> None:
    await db.execute("create table things (id uuid unique default gen_random_uuid(), name text)")
    text = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"

    given = await rota_app.insert_once(db, "things", [{"id": text}], conflict=["id"])
    made = await rota_app.insert_once(db, "things", [{"name": "a"}, {"name": "b"}], conflict=["id"])

    assert given.new == [(UUID(text),)]
    assert made.inserted == len({id for (id,) in made.new}) == 2


async def test_insert_once_without_rows_sends_no_statement(rota_app: Rota) -> None:
    assert await rota_app.insert_once(None, "nowhere", [], conflict=["id"]) == Inserted(0, 0, [])
    assert await rota_app.insert_once(None, "nowhere", iter(()), conflict=["id"]) == Inserted(
        0, 0, []
    )


async def test_insert_once_many_rows_are_split_into_statements(rota_app: Rota, db: Db) -> None:
    """The rows have more values than PostgreSQL allows parameters; all statements share one transaction."""
    many = 22_000
    rows = [filing(number) for number in range(many)]
    async with db.transaction():
        await rota_app.insert_once(db, "filings", rows[::2], conflict=BY)
        done = await rota_app.insert_once(db, "filings", [*rows, *rows[:9]], conflict=BY)

    assert (done.inserted, done.duplicates) == (many // 2, many // 2 + 9)
    assert done.new == [("sec", number) for number in range(1, many, 2)]


def test_insert_once_wide_rows_keep_the_parameter_limit() -> None:
    sizes = []
    wide = [{f"c{at}": row for at in range(700)} for row in range(100)]
    going = insert_once._statements("t", wide, ["c0"])
    statement = next(going)
    try:
        while True:
            sizes.append(len(statement.numbered()[1]))
            statement = going.send([])
    except StopIteration:
        pass

    assert sum(sizes) == 70_000
    assert max(sizes) <= insert_once.MAX_VALUES


# Refusals


async def test_insert_once_missing_unique_index_error_names_the_index(
    rota_app: Rota, direct_dsn: str, db: Db
) -> None:
    want = r'create unique index on "filings" \("source", "title"\)'
    by = ["source", "title"]
    with pytest.raises(ArgumentError, match=want):
        await rota_app.insert_once(db, "filings", ROWS, conflict=by)
    async with asyncpg_connection(direct_dsn) as connection:
        with pytest.raises(ArgumentError, match=want):
            await rota_app.insert_once(connection, "filings", ROWS, conflict=by)
    engine = sa.create_engine(sqlalchemy_url(direct_dsn, "psycopg"))
    with Session(engine) as session, pytest.raises(ArgumentError, match=want):
        rota_app.sync.insert_once(session, "filings", ROWS, conflict=by)
    engine.dispose()

    await db.execute('create unique index on "filings" ("source", "title")')
    assert (await rota_app.insert_once(db, "filings", ROWS, conflict=by)).inserted == 2


async def test_insert_once_table_error_is_the_drivers_error(rota_app: Rota, db: Db) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"):
        await rota_app.insert_once(db, "nowhere", ROWS, conflict=BY)
    with pytest.raises(psycopg.errors.NotNullViolation):
        await rota_app.insert_once(db, "filings", [{"source": None, "number": 1}], conflict=BY)


@pytest.mark.parametrize(
    ("table", "rows", "conflict", "says"),
    [
        ("a.b.c", ROWS, BY, "a name with a dot in it is given as"),
        ("", ROWS, BY, "not the name of a table"),
        ("a\0", ROWS, BY, "not the name of a table"),
        ("t", ROWS, "number", "a list of the columns"),
        ("t", ROWS, [], "a list of the columns"),
        ("t", ROWS, [""], "not the name of a column"),
        ("t", [{}], BY, "no columns"),
        ("t", [{1: 2}], BY, "not the name of a column"),
        ("t", [filing(1), {"source": "x", "title": ""}], BY, "row 1 differs from row 0 in number"),
    ],
)
async def test_insert_once_invalid_arguments_raise_before_any_statement(
    table: str, rows: Any, conflict: Any, says: str, rota_app: Rota
) -> None:
    with pytest.raises(ArgumentError, match=says):
        await rota_app.insert_once(None, table, rows, conflict=conflict)


async def test_insert_once_object_that_is_no_connection_is_refused(rota_app: Rota) -> None:
    with pytest.raises(ArgumentError, match="insert_once takes a psycopg or asyncpg connection"):
        await rota_app.insert_once(object(), "filings", ROWS, conflict=BY)


async def test_insert_once_sync_refuses_an_async_connection(rota_app: Rota, db: Db) -> None:
    with pytest.raises(ArgumentError, match=r"await app\.insert_once"):
        rota_app.sync.insert_once(db, "filings", ROWS, conflict=BY)

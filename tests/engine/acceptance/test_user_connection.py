"""`options(on=…)`: the job is started by the commit of the caller's connection and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rota import ArgumentError, KeyBusy, Rota, Task
from support.user_connections import (
    asyncpg_connection,
    django_connection,
    dsn_parameters,
    sqlalchemy_url,
)


@pytest.fixture
def greet(rota_app: Rota) -> Task[[str], str]:
    @rota_app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    return greet


async def count(dsn: str) -> int:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute("select count(*) from rota.queued")
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0])


class RollBack(Exception):
    """Raised to roll the transaction back."""


Start = Callable[[str, Task[[str], str], bool], Any]


async def with_psycopg(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    with psycopg.connect(dsn) as connection:
        run = greet.sync.options(on=connection).start("Ada")
        assert run.created
        assert await count(dsn) == 0
        connection.commit() if commit else connection.rollback()


async def with_psycopg_in_async_code(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    with psycopg.connect(dsn) as connection:
        await greet.options(on=connection).start("Ada")
        connection.commit() if commit else connection.rollback()


async def with_psycopg_async(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await greet.options(on=connection).start("Ada")
        assert await count(dsn) == 0
        await (connection.commit() if commit else connection.rollback())


async def with_psycopg_rows_as_dicts(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    async with await psycopg.AsyncConnection.connect(
        dsn, row_factory=psycopg.rows.dict_row
    ) as connection:
        await greet.options(on=connection).start("Ada")
        await (connection.commit() if commit else connection.rollback())


async def with_asyncpg(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    async with asyncpg_connection(dsn) as connection:
        try:
            async with connection.transaction():
                await greet.options(on=connection).start("Ada")
                assert await count(dsn) == 0
                if not commit:
                    raise RollBack
        except RollBack:
            pass


async def with_asyncpg_pool(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    words = dsn_parameters(dsn)
    async with asyncpg.create_pool(
        host=words["host"], user=words["user"], database=words["dbname"], min_size=1
    ) as pool:
        async with pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await greet.options(on=connection).start("Ada")
            await (transaction.commit() if commit else transaction.rollback())


async def with_a_sqlalchemy_session(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    engine = sa.create_engine(sqlalchemy_url(dsn, "psycopg"))
    with Session(engine) as session:
        greet.sync.options(on=session).start("Ada")
        assert await count(dsn) == 0
        session.commit() if commit else session.rollback()
    engine.dispose()


async def with_a_sqlalchemy_connection(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    engine = sa.create_engine(sqlalchemy_url(dsn, "psycopg"))
    with engine.connect() as connection:
        greet.sync.options(on=connection).start("Ada")
        connection.commit() if commit else connection.rollback()
    engine.dispose()


async def with_an_async_session(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    engine = create_async_engine(sqlalchemy_url(dsn, "psycopg"))
    async with AsyncSession(engine) as session:
        await greet.options(on=session).start("Ada")
        assert await count(dsn) == 0
        await (session.commit() if commit else session.rollback())
    await engine.dispose()


async def with_an_async_session_on_asyncpg(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    engine = create_async_engine(sqlalchemy_url(dsn, "asyncpg"))
    async with AsyncSession(engine) as session:
        await greet.options(on=session).start("Ada")
        await (session.commit() if commit else session.rollback())
    await engine.dispose()


async def with_an_async_connection(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    engine = create_async_engine(sqlalchemy_url(dsn, "psycopg"))
    async with engine.connect() as connection:
        await greet.options(on=connection).start("Ada")
        await (connection.commit() if commit else connection.rollback())
    await engine.dispose()


async def with_django(dsn: str, greet: Task[[str], str], commit: bool) -> None:
    import asyncio

    def work() -> None:
        connection = django_connection(dsn)
        from django.db import transaction

        try:
            with transaction.atomic(using="default"):
                greet.sync.options(on=connection).start("Ada")
                if not commit:
                    raise RollBack
        except RollBack:
            pass
        finally:
            connection.close()

    # Django's connections belong to a thread and refuse use inside a running loop.
    await asyncio.to_thread(work)


WAYS: list[Start] = [
    with_psycopg,
    with_psycopg_in_async_code,
    with_psycopg_async,
    with_psycopg_rows_as_dicts,
    with_asyncpg,
    with_asyncpg_pool,
    with_a_sqlalchemy_session,
    with_a_sqlalchemy_connection,
    with_an_async_session,
    with_an_async_session_on_asyncpg,
    with_an_async_connection,
    with_django,
]


@pytest.mark.parametrize("start", WAYS, ids=lambda way: way.__name__)
async def test_start_on_connection_commit_queues_the_job(
    start: Start, rota_dsn: str, greet: Task[[str], str]
) -> None:
    await start(rota_dsn, greet, True)

    assert await count(rota_dsn) == 1


@pytest.mark.parametrize("start", WAYS, ids=lambda way: way.__name__)
async def test_start_on_connection_rollback_leaves_no_job(
    start: Start, rota_dsn: str, greet: Task[[str], str]
) -> None:
    await start(rota_dsn, greet, False)

    assert await count(rota_dsn) == 0


async def test_start_on_connection_commit_wakes_idle_worker(
    rota_app: Rota, rota_dsn: str, greet: Task[[str], str]
) -> None:
    async with rota_app.worker():
        async with await psycopg.AsyncConnection.connect(rota_dsn) as connection:
            run = await greet.options(on=connection).start("Ada")
            await connection.commit()

        assert await run.result(timeout=60) == "hello Ada"


async def test_start_with_key_in_open_transaction_raises_key_busy(
    rota_dsn: str, greet: Task[[str], str]
) -> None:
    async with await psycopg.AsyncConnection.connect(rota_dsn) as connection:
        first = await greet.options(on=connection, key="k").start("Ada")
        with pytest.raises(KeyBusy, match="open transaction"):
            await greet.options(key="k").start("Ada")
        await connection.commit()

    again = await greet.options(key="k").start("Ada")
    assert (again.id, again.created) == (first.id, False)


async def test_start_on_non_connection_is_refused(greet: Task[[str], str]) -> None:
    with pytest.raises(ArgumentError, match="takes a psycopg or asyncpg connection"):
        await greet.options(on=object()).start("Ada")


async def test_sync_start_on_async_connection_is_refused(
    rota_dsn: str, greet: Task[[str], str]
) -> None:
    async with await psycopg.AsyncConnection.connect(rota_dsn) as connection:
        with pytest.raises(ArgumentError, match="await"):
            greet.sync.options(on=connection).start("Ada")


async def test_sql_start_function_starts_a_job(
    rota_app: Rota, rota_dsn: str, greet: Task[[str], str]
) -> None:
    async with await psycopg.AsyncConnection.connect(rota_dsn, autocommit=True) as connection:
        cursor = await connection.execute(
            "select run from rota.start('greet', '{\"name\": \"Ada\"}', key => 'a')"
        )
        row = await cursor.fetchone()
    assert row is not None

    async with rota_app.worker():
        assert await rota_app.run(row[0]).result(timeout=60) == "hello Ada"

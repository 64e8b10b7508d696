"""`rota.contrib.fastapi`: a run started in a request's session is committed with that session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, assert_type

import pytest
import sqlalchemy as sa
from fastapi import Depends, FastAPI
from httpx2 import ASGITransport, AsyncClient
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rota import Rota, Task
from rota.app.run import Run
from rota.app.sync import SyncRun
from rota.contrib.fastapi import Runs, runs_in
from rota.errors import DefinitionError
from support.user_connections import sqlalchemy_url


class Broken(Exception):
    """Raised by an endpoint after the run was started."""


class Shop:
    """API that inserts an order and starts a job that confirms it."""

    def __init__(self, app: Rota, dsn: str) -> None:
        self.app = app
        self.dsn = dsn
        self.api = FastAPI()
        self.flow = app.flow("dispatch")

        @app.task(queue="mail")
        async def confirm(order: int) -> str:
            return f"confirmed {order}"

        @self.flow.task
        async def pack(order: int) -> int:
            return order

        self.confirm: Task[[int], str] = confirm

    async def ask(self, path: str) -> int:
        transport = ASGITransport(app=self.api, raise_app_exceptions="broken" not in path)
        async with AsyncClient(transport=transport, base_url="http://shop") as client:
            answer: int = (await client.post(path)).status_code
            return answer

    async def counts(self) -> tuple[int, int]:
        """Return the number of orders and of their jobs."""
        database = (await self.app.open()).database
        async with database.connection() as connection:
            cursor = await connection.execute(
                "select (select count(*) from public.orders), (select count(*) from rota.jobs)"
            )
            [[orders, jobs]] = await cursor.fetchall()
            return orders, jobs


@pytest.fixture
async def shop(rota_app: Rota, rota_dsn: str) -> Shop:
    database = (await rota_app.open()).database
    async with database.connection() as connection:
        await connection.execute("create table public.orders (number integer)")
    return Shop(rota_app, rota_dsn)


ORDER = sa.text("insert into orders values (:number)")


@pytest.fixture(params=["psycopg", "asyncpg"])
async def async_shop(shop: Shop, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """Async endpoints, with a session that commits after they have returned."""
    engine = create_async_engine(sqlalchemy_url(shop.dsn, request.param))

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session, session.begin():
            yield session

    SessionDep = Annotated[AsyncSession, Depends(get_session, scope="function")]
    RunsDep = Annotated[Runs, Depends(runs_in(SessionDep))]

    async def order(number: int, session: Any, runs: Any, broken: bool = False) -> None:
        await session.execute(ORDER, {"number": number})
        run = await runs.start(shop.confirm.options(delay=60), number)
        assert_type(await Runs(session).start(shop.confirm, number), Run[str])
        await runs.start(shop.flow, order=number)
        assert run.id
        assert runs.session is session
        if broken:
            raise Broken

    order.__annotations__ |= {"session": SessionDep, "runs": RunsDep}
    shop.api.post("/orders/{number}")(order)
    yield shop
    await engine.dispose()


async def test_fastapi_run_is_committed_with_the_request_session(async_shop: Shop) -> None:
    assert await async_shop.ask("/orders/1") == 200

    assert await async_shop.counts() == (1, 3)
    state = "select count(*) from rota.job_state where state = 'sleeping'"
    database = (await async_shop.app.open()).database
    async with database.connection() as connection:
        # The delay set by `options` still applies: one run sleeps for a minute.
        assert await (await connection.execute(state)).fetchone() == (1,)


async def test_fastapi_failed_request_starts_no_run(async_shop: Shop) -> None:
    assert await async_shop.ask("/orders/1?broken=true") == 500

    assert await async_shop.counts() == (0, 0)


@pytest.fixture
def sync_shop(shop: Shop) -> Iterator[Shop]:
    """Sync endpoints, each in a thread, with a dependency that is identified by its function."""
    engine = sa.create_engine(sqlalchemy_url(shop.dsn, "psycopg"))

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    get_runs = runs_in(get_session)

    def order(number: int, session: Any, runs: Any, broken: bool = False) -> None:
        session.execute(ORDER, {"number": number})
        run = runs.sync.start(shop.confirm, number)
        assert_type(Runs(session).sync.start(shop.confirm, number), SyncRun[str])
        assert run.id
        assert runs.session is session
        if broken:
            raise Broken
        session.commit()

    order.__annotations__ |= {
        "session": Annotated[Session, Depends(get_session)],
        "runs": Annotated[Runs, Depends(get_runs)],
    }
    shop.api.post("/orders/{number}")(order)
    yield shop
    engine.dispose()


async def test_fastapi_sync_endpoint_starts_run_unless_the_request_fails(sync_shop: Shop) -> None:
    assert await sync_shop.ask("/orders/1") == 200
    assert await sync_shop.ask("/orders/2?broken=true") == 500

    assert await sync_shop.counts() == (1, 2)


def test_runs_in_without_session_dependency_is_refused() -> None:
    with pytest.raises(DefinitionError, match="Depends"):
        runs_in(AsyncSession)

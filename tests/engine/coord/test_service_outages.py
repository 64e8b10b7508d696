"""Services while the database is unreachable: no iteration begins, and no end of one is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rota import Rota
from rota.coord import service_runner
from rota.model.service import ServiceContext
from rota.store.query import Query
from rota.testing.proxy.connection import CutPoint
from rota.testing.proxy.proxy import Proxy
from support.service_helpers import outcomes, record_iterations, until


@pytest.fixture
def proxy(direct_dsn: str) -> Iterator[Proxy]:
    with Proxy(direct_dsn) as proxy:
        yield proxy


async def test_service_during_outage_begins_no_iteration(proxy: Proxy) -> None:
    begun: list[int] = []
    async with Rota(proxy.dsn) as app:

        @app.service("filings", every=0.25, lease=2)
        async def filings(ctx: ServiceContext) -> None:
            begun.append(ctx.iteration)

        async with app.services() as services:
            await until(lambda: len(begun) == 2)
            proxy.refuse()
            proxy.reset()
            count = len(begun)
            await until(lambda: not services.list_running())
            await asyncio.sleep(1.0)  # the outage
            assert len(begun) <= count + 1  # one may have been granted before the outage
            count, back = len(begun), time.monotonic()
            proxy.heal()
            await until(lambda: len(begun) >= count + 6)
    # Missed iterations are not made up; the interval stays.
    assert time.monotonic() - back >= 4 * 0.25


async def test_service_iteration_with_lost_begin_answer_is_marked_lost(
    proxy: Proxy,
) -> None:
    numbers: list[int] = []
    async with Rota(proxy.dsn) as app:

        @app.service("filings", every=0.3)
        async def filings(ctx: ServiceContext) -> None:
            numbers.append(ctx.iteration)

        async with app.services():
            await until(lambda: numbers == [1])
            proxy.cut("answered", matching="insert into rota.iterations")
            await until(lambda: len(numbers) == 3, within=60)
            [cut] = await asyncio.to_thread(proxy.wait_for_cuts)
            assert cut.committed
        assert numbers == [1, 3, 4]
        assert (await outcomes(app))[:4] == ["succeeded", "lost", "succeeded", "succeeded"]


async def test_service_iteration_end_with_lost_answer_is_recorded(proxy: Proxy) -> None:
    async with Rota(proxy.dsn) as app:
        heard = record_iterations(app)
        app.service("filings", every=0.3)(lambda: None)
        async with app.services():
            await until(lambda: heard)
            places: tuple[CutPoint, ...] = ("answered", "before")
            for where in places:
                proxy.cut(where, matching="set failures")
            await until(lambda: len(heard) == 4, within=60)
            assert len(await asyncio.to_thread(proxy.wait_for_cuts, 2)) == 2
        assert set((await outcomes(app))[:4]) == {"succeeded"}


async def test_service_iteration_end_is_recorded_despite_timeouts(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_runner, "RECORD_TIMEOUT_SECONDS", 0.2)
    heard, running, enough = record_iterations(rota_app), asyncio.Event(), asyncio.Event()
    database, tries = (await rota_app.open()).database, []
    run_with_retry = database.run_with_retry

    async def counted(query: Query[Any], outage_timeout: float) -> Any:
        tries.append(query)
        return await run_with_retry(query, outage_timeout)

    monkeypatch.setattr(database, "run_with_retry", counted)

    @rota_app.service("filings", every=60)
    async def filings() -> None:
        running.set()
        await enough.wait()

    async with rota_app.services():
        await asyncio.wait_for(running.wait(), 60)
        async with await psycopg.AsyncConnection.connect(database.dsn) as in_the_way:
            await in_the_way.execute("select from rota.iterations for update")
            enough.set()
            await until(lambda: len(tries) == 4)  # three have timed out
            assert not heard
        await until(lambda: heard)
        assert await outcomes(rota_app) == ["succeeded"]


async def test_service_begin_on_dead_connection_is_abandoned(proxy: Proxy) -> None:
    begun: list[float] = []
    async with Rota(proxy.dsn) as app:
        heard = record_iterations(app)
        app.service("filings", every=0.4, lease=1.5)(lambda: begun.append(time.monotonic()))
        async with app.services() as services:
            await until(lambda: len(heard) == 2)  # the next statement asks to begin an iteration
            proxy.drop()
            await until(lambda: not services.list_running(), within=60)
            proxy.heal()
            count = len(begun)
            await until(lambda: len(begun) > count, within=60)

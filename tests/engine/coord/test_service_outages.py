"""Services while the database is unreachable: no iteration begins, and no end of one is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise

import psycopg
import pytest

from rota import Rota
from rota.coord import service_runner
from rota.model.service import ServiceContext
from rota.testing.proxy.connection import CutPoint
from rota.testing.proxy.proxy import Proxy
from support.service_helpers import outcomes, record_iterations, until


@pytest.fixture
def proxy(direct_dsn: str) -> Iterator[Proxy]:
    with Proxy(direct_dsn) as proxy:
        yield proxy


async def test_service_during_outage_begins_no_iteration(proxy: Proxy) -> None:
    begun: list[float] = []
    async with Rota(proxy.dsn) as app:
        app.service("filings", every=0.25, lease=2)(lambda: begun.append(time.monotonic()))
        async with app.services():
            await until(lambda: len(begun) == 2)
            proxy.refuse()
            proxy.reset()
            away = time.monotonic()
            await asyncio.sleep(1.0)
            proxy.heal()
            back = time.monotonic()
            await until(lambda: begun[-1] > back, within=60)
            count = len(begun)
            await asyncio.sleep(0.8)
    assert [each for each in begun if away + 0.05 < each < back] == []
    # Missed iterations are not made up; the interval stays.
    assert len(begun) - count <= 5
    apart = [later - earlier for earlier, later in pairwise(begun[count - 1 :])]
    assert min(apart) > 0.1


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

    @rota_app.service("filings", every=60)
    async def filings() -> None:
        running.set()
        await enough.wait()

    async with rota_app.services():
        await asyncio.wait_for(running.wait(), 60)
        dsn = (await rota_app.open()).database.dsn
        async with await psycopg.AsyncConnection.connect(dsn) as in_the_way:
            await in_the_way.execute("select from rota.iterations for update")
            enough.set()
            await asyncio.sleep(0.8)
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

"""A service whose connection stays open and answers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rota import Rota
from rota.model.service import ServiceContext
from rota.testing.proxy.proxy import Proxy
from support.service_helpers import outcomes, record_iterations, run_sql, until


@pytest.fixture
def proxy(direct_dsn: str) -> Iterator[Proxy]:
    with Proxy(direct_dsn) as proxy:
        yield proxy


async def test_service_silent_outage_cancels_iteration_and_recovers(
    proxy: Proxy,
) -> None:
    held: list[bool] = []
    began = asyncio.Event()
    async with Rota(proxy.dsn) as app:
        heard = record_iterations(app)

        @app.service("filings", every=0.2, lease=1.5)
        async def filings(ctx: ServiceContext) -> None:
            if ctx.iteration == 1:
                began.set()
                await asyncio.sleep(0.3)
                try:
                    await asyncio.sleep(30)
                finally:
                    held.append(ctx.held)

        async with app.services():
            await asyncio.wait_for(began.wait(), 60)
            proxy.drop()
            await until(lambda: held, within=60)
            assert held == [False]
            proxy.heal()
            await until(lambda: len(heard) > 2, within=60)
        rows = await outcomes(app)
        # The term won meanwhile was not resigned together with the lost one.
        assert await run_sql(app, "select term from rota.leaders") == [(2,)]
    assert rows[0] == "lost"
    assert set(rows[1:]) <= {"succeeded", "stopped"}

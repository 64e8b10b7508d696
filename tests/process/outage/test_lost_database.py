"""Outages of the database: workers and clients wait quietly and resume by themselves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota.errors import DatabaseUnavailable
from rota.localpg import LocalPostgres
from rota.testing.proxy.proxy import Proxy
from support.fleet import fetch_row, wait_for_row
from support.outage_fixtures import Worker, kill_server, starting_app
from support.pgbouncer import run_pgbouncer
from support.replication import PrimaryAndStandby
from support.scale import scale

AWAY = scale(1.0, 4.0)
"""Seconds of the outage. Only the long form limits the processor time."""

FLUSHED = "select pg_current_wal_flush_lsn() = pg_current_wal_insert_lsn()"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("between", scale(["nothing"], ["nothing", "a pooler"]))
async def test_worker_in_outage_waits_quietly_and_resumes(
    server: LocalPostgres, worker: Callable[[str], Worker], between: str
) -> None:
    direct = server.dsn
    async with AsyncExitStack() as opened:
        dsn = direct
        if between == "a pooler":
            dsn = opened.enter_context(run_pgbouncer(direct)).before(direct)
        app, note = await opened.enter_async_context(starting_app(dsn))
        process = worker(dsn)
        done = await app.start_many([note.bind(n=n) for n in range(200)])
        for run in done:
            await run.result(timeout=60)
        # These jobs end during the outage.
        await app.start_many([note.bind(n=n, gate=process.gate) for n in range(200, 215)])
        await wait_for_row(
            direct, "select sum(cardinality(jobs)) from rota.claims", (15,), within=60
        )
        # A claim is not flushed by itself; a claim lost with the server would be made again.
        await wait_for_row(direct, FLUSHED, (True,), within=60)

        await kill_server(server)
        await process.open_gate(15)
        before = process.cpu()
        await asyncio.sleep(AWAY)
        used = process.cpu() - before
        await asyncio.to_thread(server.restart)

        run = await note.start(n=1000)
        assert await run.result(timeout=60) == 1000
        await wait_for_row(direct, "select count(*) from rota.outcomes", (216,), within=60)
        assert process.stop() == 0

    assert used < scale(math.inf, 0.2 * AWAY), f"{used:.2f} s of a processor in {AWAY:g} s"
    # Running jobs continued, and their outcomes were recorded.
    assert set(process.notes().values()) == {1}
    assert await fetch_row(
        direct,
        "select count(*), count(distinct job), bool_and(state = 'succeeded') from rota.outcomes",
    ) == (216, 216, True)
    said = process.said()
    assert not [line for line in said if "Traceback" in line]
    assert len(said) < 40, "\n".join(said)
    print(f"{used / AWAY:.1%} of a processor, {len(said)} lines")


async def test_start_in_outage_waits_and_is_made_once(server: LocalPostgres) -> None:
    dsn = server.dsn
    async with starting_app(dsn, outage_timeout=120) as (_, note):
        await note.start(n=0)
        await kill_server(server)
        starting = asyncio.create_task(note.start(n=1))
        await asyncio.sleep(0.5)
        assert not starting.done()
        await asyncio.to_thread(server.restart)
        await asyncio.wait_for(starting, 60)

    assert await fetch_row(dsn, "select count(*) from rota.jobs") == (2,)


async def test_start_in_outage_beyond_timeout_raises(server: LocalPostgres) -> None:
    async with starting_app(server.dsn, outage_timeout=0.5) as (_, note):
        await note.start(n=0)
        await kill_server(server)
        with pytest.raises(DatabaseUnavailable, match="did not answer in time: cannot reach"):
            await note.start(n=1)
        await asyncio.to_thread(server.restart)
        await note.start(n=2)


async def test_failover_worker_and_client_find_the_new_primary(
    primary_and_standby: PrimaryAndStandby, worker: Callable[[str], Worker]
) -> None:
    """The DSN only has two hosts; clients choose the one that accepts writes."""
    async with starting_app(primary_and_standby.dsn, outage_timeout=120) as (app, note):
        process = worker(primary_and_standby.dsn)
        for run in await app.start_many([note.bind(n=n) for n in range(50)]):
            await run.result(timeout=60)
        await app.start_many([note.bind(n=n, gate=process.gate) for n in range(50, 60)])
        held = "select sum(cardinality(jobs)) from rota.claims"
        await wait_for_row(primary_and_standby.primary.dsn, held, (10,), within=60)
        await asyncio.to_thread(primary_and_standby.follows)

        await kill_server(primary_and_standby.primary)
        # The standby answers but is read-only: no client may stay connected to it.
        starting = asyncio.create_task(note.start(n=100))
        await process.open_gate(10)
        assert not starting.done()
        await asyncio.to_thread(primary_and_standby.promote)

        run = await asyncio.wait_for(starting, 60)
        assert await run.result(timeout=60) == 100
        await wait_for_row(
            primary_and_standby.standby_dsn, "select count(*) from rota.outcomes", (61,), within=60
        )

    assert process.stop() == 0
    assert process.notes()[100] == 1


async def test_start_with_lost_answer_raises_and_is_not_repeated(
    rota_dsn: str, db: AsyncConnection[Any]
) -> None:
    """The start was committed.

    The caller gets an error that the result is unknown, and the start is not repeated.
    """
    with Proxy(rota_dsn) as proxy:
        async with starting_app(proxy.dsn, outage_timeout=5) as (_, note):
            proxy.cut("answered", matching="rota.jobs")
            with pytest.raises(DatabaseUnavailable, match="lost before the answer came"):
                await note.start(n=1)
            [cut] = await asyncio.to_thread(proxy.wait_for_cuts)
    assert cut.committed
    assert await (await db.execute("select count(*) from rota.jobs")).fetchone() == (1,)

"""Outages of the database: workers and clients wait quietly and resume by themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from psycopg import AsyncConnection

from cluster.fleet import ask, until
from outage.conftest import Worker, gone, starter
from outage.pair import Pair
from pooler.bouncer import bouncer
from rota.errors import DatabaseUnavailable
from rota.localpg import LocalPostgres
from rota.testing.proxy.proxy import Proxy

AWAY = 4.0
FLUSHED = "select pg_current_wal_flush_lsn() = pg_current_wal_insert_lsn()"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("between", ["nothing", "a pooler"])
async def test_a_worker_waits_quietly_and_goes_on_by_itself(
    server: LocalPostgres, worker: Callable[[str], Worker], between: str
) -> None:
    direct = server.dsn
    async with AsyncExitStack() as opened:
        dsn = direct
        if between == "a pooler":
            dsn = opened.enter_context(bouncer(direct)).before(direct)
        app, note = await opened.enter_async_context(starter(dsn))
        process = worker(dsn)
        done = await app.start_many([note.bind(n=n) for n in range(200)])
        for run in done:
            await run.result(timeout=60)
        # These jobs end during the outage.
        await app.start_many([note.bind(n=n, wait=1.5) for n in range(200, 215)])
        await until(direct, "select sum(cardinality(jobs)) from rota.claims", (15,), within=60)
        # A claim is not flushed by itself; a claim lost with the server would be made again.
        await until(direct, FLUSHED, (True,), within=60)

        await gone(server)
        await asyncio.sleep(0.5)
        before = process.cpu()
        await asyncio.sleep(AWAY)
        used = process.cpu() - before
        await asyncio.to_thread(server.restart)

        back = time.monotonic()
        run = await note.start(n=1000)
        assert await run.result(timeout=60) == 1000
        assert time.monotonic() - back < 5
        await until(direct, "select count(*) from rota.outcomes", (216,), within=60)
        assert process.stop() == 0

    assert used < 0.2 * AWAY, f"{used:.2f} s of a processor in {AWAY:g} s"
    # Running jobs continued, and their outcomes were recorded.
    assert set(process.notes().values()) == {1}
    assert await ask(
        direct,
        "select count(*), count(distinct job), bool_and(state = 'succeeded') from rota.outcomes",
    ) == (216, 216, True)
    said = process.said()
    assert not [line for line in said if "Traceback" in line]
    assert len(said) < 40, "\n".join(said)
    print(f"{used / AWAY:.1%} of a processor, {len(said)} lines")


async def test_a_start_waits_for_the_database_and_is_made_once(server: LocalPostgres) -> None:
    dsn = server.dsn
    async with starter(dsn, outage_timeout=20) as (_, note):
        await note.start(n=0)
        await gone(server)
        starting = asyncio.create_task(note.start(n=1))
        await asyncio.sleep(0.5)
        assert not starting.done()
        await asyncio.to_thread(server.restart)
        await asyncio.wait_for(starting, 60)

    assert await ask(dsn, "select count(*) from rota.jobs") == (2,)


async def test_a_start_that_has_waited_long_enough_says_so(server: LocalPostgres) -> None:
    async with starter(server.dsn, outage_timeout=0.5) as (_, note):
        await note.start(n=0)
        await gone(server)
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="did not answer in time: cannot reach"):
            await note.start(n=1)
        assert time.monotonic() - began < 5
        await asyncio.to_thread(server.restart)
        await note.start(n=2)


async def test_after_a_failover_everybody_finds_the_new_primary(
    pair: Pair, worker: Callable[[str], Worker]
) -> None:
    """The DSN only has two hosts; clients choose the one that accepts writes."""
    async with starter(pair.dsn, outage_timeout=30) as (app, note):
        process = worker(pair.dsn)
        for run in await app.start_many([note.bind(n=n) for n in range(50)]):
            await run.result(timeout=60)
        await app.start_many([note.bind(n=n, wait=2) for n in range(50, 60)])
        held = "select sum(cardinality(jobs)) from rota.claims"
        await until(pair.primary.dsn, held, (10,), within=60)
        await asyncio.to_thread(pair.follows)

        await gone(pair.primary)
        # The standby answers but is read-only: no client may stay connected to it.
        starting = asyncio.create_task(note.start(n=100))
        await asyncio.sleep(2)
        assert not starting.done()
        await asyncio.to_thread(pair.promote)

        run = await asyncio.wait_for(starting, 60)
        assert await run.result(timeout=60) == 100
        await until(pair.standby_dsn, "select count(*) from rota.outcomes", (61,), within=60)

    assert process.stop() == 0
    assert process.notes()[100] == 1


async def test_a_start_whose_answer_was_lost_is_not_sent_again(
    rota_dsn: str, db: AsyncConnection[Any]
) -> None:
    """The start was committed.

    The caller gets an error that the result is unknown, and the start is not repeated.
    """
    with Proxy(rota_dsn) as proxy:
        async with starter(proxy.dsn, outage_timeout=5) as (_, note):
            proxy.cut("answered", matching="rota.jobs")
            with pytest.raises(DatabaseUnavailable, match="lost before the answer came"):
                await note.start(n=1)
            [cut] = await asyncio.to_thread(proxy.wait_for_cuts)
    assert cut.committed
    assert await (await db.execute("select count(*) from rota.jobs")).fetchone() == (1,)

"""A sleeping run survives restarts of its workers and its server, and a deploy of other code.

Workers are `rota worker` processes, the server belongs to the test, and a deploy replaces the text of the
module.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from cluster.fleet import ask, until
from outage.pair import in_memory
from rota import Context, Rota, Run
from rota.localpg import LocalPostgres
from rota.testing.clock import THROWAWAY_SCHEMA, SettableClock

pytestmark = pytest.mark.slow

BEFORE = """
from rota import Context, Rota

app = Rota(poll_interval=0.1, heartbeat_interval=0.25, dead_after=10, drain_timeout=10)

@app.task
async def other(n: int) -> int:
    return n

async def note(ctx: Context, what: str) -> str:
    async with ctx.transaction() as connection:
        await connection.execute("insert into effects (step, version) values (%s, 1)", (what,))
    return what + " by 1"

@app.task
async def onboard(ctx: Context, user: str) -> list[str]:
    told = [await ctx.step("welcome", note, ctx, f"welcome {user}")]
    await ctx.sleep(days=7)
    told.append(await ctx.step("remind", note, ctx, f"remind {user}"))
    told.append(await ctx.wait_signal("reply", str))
    told.append(await ctx.step("thank", note, ctx, f"thank {user}"))
    return told
"""

# Another task has other parameters, a task is new, and the function is rewritten before and after its
# sleep. It reaches the same steps in the same order.
AFTER = """
import logging
from dataclasses import dataclass

from rota import Context, Rota

app = Rota(poll_interval=0.1, heartbeat_interval=0.25, dead_after=10, drain_timeout=10)
log = logging.getLogger("shop")

@dataclass
class Order:
    number: int
    paid: bool = False

@app.task
async def brand_new(order: Order) -> int:
    return order.number

@app.task
async def other(order: Order, twice: bool = False) -> int:
    return order.number * (2 if twice else 1)

async def write(ctx: Context, what: str) -> str:
    log.info("to tell: %s", what)
    async with ctx.transaction() as connection:
        await connection.execute("insert into effects (step, version) values (%s, 2)", (what,))
    return f"{what} by 2"

@app.task
async def onboard(ctx: Context, user: str, greeting: str = "welcome") -> list[str]:
    log.info("on board with %s", user)

    async def tell(name: str) -> str:
        return await ctx.step(name, write, ctx, f"{name} {user}")

    first = await tell(greeting)
    ctx.log("and now to bed")
    await ctx.sleep(days=7)
    second = await tell("remind")
    reply = await ctx.wait_signal("reply", str)
    return [first, second, reply, await tell("thank")]
"""

TABLE = "create table effects (id int generated always as identity, step text, version int)"
EFFECTS = "select array_agg(step || ' ' || version order by id) from effects"
ASLEEP = "select count(*) from rota.sleeping"


class Site:
    """Deployed app: its module, its server and its workers."""

    def __init__(self, directory: Path, server: LocalPostgres, dsn: str) -> None:
        self.server = server
        self.dsn = dsn
        self._directory = directory
        self._workers: list[subprocess.Popen[bytes]] = []

    def deploy(self, text: str) -> None:
        (self._directory / "shop.py").write_text(text)

    def start_workers(self) -> None:
        path = filter(None, (str(self._directory), os.environ.get("PYTHONPATH")))
        environment = {
            **os.environ,
            "ROTA_DATABASE_URL": self.dsn,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONDONTWRITEBYTECODE": "1",  # a stale .pyc matches by size and second
        }
        command = [sys.executable, "-m", "rota", "worker", "shop:app"]
        for _ in range(2):
            self._workers.append(
                subprocess.Popen(
                    command, env=environment, cwd=self._directory, stderr=subprocess.DEVNULL
                )
            )

    async def manned(self) -> None:
        """Wait until these workers are registered and have polled for jobs."""
        pids = ",".join(str(each.pid) for each in self._workers)
        working = f"""
            select count(*) from rota.workers
             where state = 'active' and beats >= 2 and pid = any('{{{pids}}}')
        """
        await until(self.dsn, working, (len(self._workers),), within=60)

    def stop_workers(self, how: signal.Signals = signal.SIGTERM) -> list[int]:
        gone, self._workers = self._workers, []
        for each in gone:
            each.send_signal(how)
        return [each.wait(60) for each in gone]

    def close(self) -> None:
        for each in self._workers:
            each.kill()
            each.wait()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    with in_memory() as directory:
        server = LocalPostgres(directory / "pg", profile="test")
        dsn = await asyncio.to_thread(server.start)
        try:
            async with Rota(dsn) as app:
                await app.migrate()
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(f"create schema {THROWAWAY_SCHEMA}".encode())
                connection.execute(TABLE)
            site = Site(tmp_path, server, dsn)
            try:
                yield site
            finally:
                site.close()
        finally:
            await asyncio.to_thread(server.stop)


@asynccontextmanager
async def begun(site: Site) -> AsyncIterator[tuple[Rota, Run[list[str]]]]:
    """Start a run on the old code and wait until it sleeps."""
    site.deploy(BEFORE)
    site.start_workers()
    async with Rota(site.dsn) as app:

        async def onboard(ctx: Context, user: str) -> list[str]:
            raise AssertionError("the producer does not work")

        run = await app.task(onboard).start("ada")
        await until(site.dsn, ASLEEP, (1,), within=60)
        await site.manned()
        yield app, run


async def still_asleep(site: Site) -> None:
    """Assert that workers are active and the run has not moved."""
    await site.manned()
    assert await ask(site.dsn, ASLEEP) == (1,)
    assert await ask(site.dsn, EFFECTS) == (["welcome ada 1"],)


async def test_a_sleeping_run_outlives_its_workers_its_server_and_a_deploy(site: Site) -> None:
    async with begun(site) as (app, run):
        # All workers are stopped and replaced, then killed and replaced.
        assert await asyncio.to_thread(site.stop_workers) == [0, 0]
        site.start_workers()
        await still_asleep(site)
        assert await asyncio.to_thread(site.stop_workers, signal.SIGKILL) == [-9, -9]
        site.start_workers()
        await still_asleep(site)

        # The server is restarted, then crashed.
        for immediately in (False, True):
            await asyncio.to_thread(site.server.restart, immediately=immediately)
            await until(site.dsn, ASLEEP, (1,), within=60)
            await still_asleep(site)

        # Other code is deployed.
        assert await asyncio.to_thread(site.stop_workers) == [0, 0]
        site.deploy(AFTER)
        site.start_workers()
        await still_asleep(site)

        clock = SettableClock(app)
        await clock.advance(timedelta(days=6))
        await still_asleep(site)
        await clock.advance(timedelta(days=1))
        await until(site.dsn, EFFECTS, (["welcome ada 1", "remind ada 2"],), within=60)

        # The run waits for a signal: the same faults again.
        await until(site.dsn, ASLEEP, (1,), within=60)
        assert await asyncio.to_thread(site.stop_workers, signal.SIGKILL) == [-9, -9]
        await asyncio.to_thread(site.server.restart, immediately=True)
        await until(site.dsn, ASLEEP, (1,), within=60)
        assert await run.signal("reply", "with pleasure")
        await asyncio.to_thread(site.server.restart, immediately=True)
        site.start_workers()

        told = ["welcome ada by 1", "remind ada by 2", "with pleasure", "thank ada by 2"]
        assert await run.result(timeout=60) == told
        assert await ask(site.dsn, EFFECTS) == (["welcome ada 1", "remind ada 2", "thank ada 2"],)
        attempts = "select attempt, (select count(*) from rota.attempts) from rota.outcomes"
        assert await ask(site.dsn, attempts) == (1, 0)


async def test_one_that_was_due_while_nobody_was_there_goes_on_when_somebody_is(site: Site) -> None:
    async with begun(site) as (app, run):
        assert await asyncio.to_thread(site.stop_workers) == [0, 0]
        await SettableClock(app).advance(timedelta(days=30))
        await asyncio.to_thread(site.server.kill)
        await asyncio.to_thread(site.server.restart)
        assert await ask(site.dsn, ASLEEP) == (1,)

        site.start_workers()
        await run.signal("reply", "late")
        assert (await run.result(timeout=60))[1:] == ["remind ada by 1", "late", "thank ada by 1"]
        assert await ask(site.dsn, EFFECTS) == (["welcome ada 1", "remind ada 1", "thank ada 1"],)


async def test_one_whose_own_code_has_changed_is_set_aside_and_goes_on_with_the_right_code(
    site: Site,
) -> None:
    """A deploy that changes the order of steps is detected."""
    async with begun(site) as (app, run):
        assert await asyncio.to_thread(site.stop_workers) == [0, 0]
        site.deploy(AFTER.replace("first = await tell(greeting)", 'first = await tell("hello")'))
        site.start_workers()
        await SettableClock(app).advance(timedelta(days=8))
        await until(site.dsn, "select count(*) from rota.quarantine", (1,), within=60)
        assert await ask(site.dsn, EFFECTS) == (["welcome ada 1"],)

        assert await asyncio.to_thread(site.stop_workers) == [0, 0]
        site.deploy(AFTER)
        site.start_workers()
        assert await run.release() == 1
        await run.signal("reply", "fine")
        told = ["welcome ada by 1", "remind ada by 2", "fine", "thank ada by 2"]
        assert await run.result(timeout=60) == told

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

from rota import Context, Rota, Run
from rota.localpg import LocalPostgres
from rota.testing.clock import THROWAWAY_SCHEMA, SettableClock
from support.fleet import fetch_row, wait_for_row
from support.replication import memory_directory

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


class DeployedApp:
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
        await wait_for_row(self.dsn, working, (len(self._workers),), within=60)

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
async def deployed_app(tmp_path: Path) -> AsyncIterator[DeployedApp]:
    with memory_directory() as directory:
        server = LocalPostgres(directory / "pg", profile="test")
        dsn = await asyncio.to_thread(server.start)
        try:
            async with Rota(dsn) as app:
                await app.migrate()
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(f"create schema {THROWAWAY_SCHEMA}".encode())
                connection.execute(TABLE)
            site = DeployedApp(tmp_path, server, dsn)
            try:
                yield site
            finally:
                site.close()
        finally:
            await asyncio.to_thread(server.stop)


@asynccontextmanager
async def start_sleeping_run(site: DeployedApp) -> AsyncIterator[tuple[Rota, Run[list[str]]]]:
    """Start a run on the old code and wait until it sleeps."""
    site.deploy(BEFORE)
    site.start_workers()
    async with Rota(site.dsn) as app:

        async def onboard(ctx: Context, user: str) -> list[str]:
            raise AssertionError("the producer does not work")

        run = await app.task(onboard).start("ada")
        await wait_for_row(site.dsn, ASLEEP, (1,), within=60)
        await site.manned()
        yield app, run


async def assert_still_sleeping(site: DeployedApp) -> None:
    """Assert that workers are active and the run has not moved."""
    await site.manned()
    assert await fetch_row(site.dsn, ASLEEP) == (1,)
    assert await fetch_row(site.dsn, EFFECTS) == (["welcome ada 1"],)


async def test_sleeping_run_survives_worker_kills_server_crashes_and_deploy(
    deployed_app: DeployedApp,
) -> None:
    async with start_sleeping_run(deployed_app) as (app, run):
        # All workers are stopped and replaced, then killed and replaced.
        assert await asyncio.to_thread(deployed_app.stop_workers) == [0, 0]
        deployed_app.start_workers()
        await assert_still_sleeping(deployed_app)
        assert await asyncio.to_thread(deployed_app.stop_workers, signal.SIGKILL) == [-9, -9]
        deployed_app.start_workers()
        await assert_still_sleeping(deployed_app)

        # The server is restarted, then crashed.
        for immediately in (False, True):
            await asyncio.to_thread(deployed_app.server.restart, immediately=immediately)
            await wait_for_row(deployed_app.dsn, ASLEEP, (1,), within=60)
            await assert_still_sleeping(deployed_app)

        # Other code is deployed.
        assert await asyncio.to_thread(deployed_app.stop_workers) == [0, 0]
        deployed_app.deploy(AFTER)
        deployed_app.start_workers()
        await assert_still_sleeping(deployed_app)

        clock = SettableClock(app)
        await clock.advance(timedelta(days=6))
        await assert_still_sleeping(deployed_app)
        await clock.advance(timedelta(days=1))
        await wait_for_row(
            deployed_app.dsn, EFFECTS, (["welcome ada 1", "remind ada 2"],), within=60
        )

        # The run waits for a signal: the same faults again.
        await wait_for_row(deployed_app.dsn, ASLEEP, (1,), within=60)
        assert await asyncio.to_thread(deployed_app.stop_workers, signal.SIGKILL) == [-9, -9]
        await asyncio.to_thread(deployed_app.server.restart, immediately=True)
        await wait_for_row(deployed_app.dsn, ASLEEP, (1,), within=60)
        assert await run.signal("reply", "with pleasure")
        await asyncio.to_thread(deployed_app.server.restart, immediately=True)
        deployed_app.start_workers()

        told = ["welcome ada by 1", "remind ada by 2", "with pleasure", "thank ada by 2"]
        assert await run.result(timeout=60) == told
        assert await fetch_row(deployed_app.dsn, EFFECTS) == (
            ["welcome ada 1", "remind ada 2", "thank ada 2"],
        )
        attempts = "select attempt, (select count(*) from rota.attempts) from rota.outcomes"
        assert await fetch_row(deployed_app.dsn, attempts) == (1, 0)


async def test_sleeping_run_due_without_workers_continues_when_they_start(
    deployed_app: DeployedApp,
) -> None:
    async with start_sleeping_run(deployed_app) as (app, run):
        assert await asyncio.to_thread(deployed_app.stop_workers) == [0, 0]
        await SettableClock(app).advance(timedelta(days=30))
        await asyncio.to_thread(deployed_app.server.kill)
        await asyncio.to_thread(deployed_app.server.restart)
        assert await fetch_row(deployed_app.dsn, ASLEEP) == (1,)

        deployed_app.start_workers()
        await run.signal("reply", "late")
        assert (await run.result(timeout=60))[1:] == ["remind ada by 1", "late", "thank ada by 1"]
        assert await fetch_row(deployed_app.dsn, EFFECTS) == (
            ["welcome ada 1", "remind ada 1", "thank ada 1"],
        )


async def test_sleeping_run_with_changed_steps_is_quarantined_until_fixed(
    deployed_app: DeployedApp,
) -> None:
    """A deploy that changes the order of steps is detected."""
    async with start_sleeping_run(deployed_app) as (app, run):
        assert await asyncio.to_thread(deployed_app.stop_workers) == [0, 0]
        deployed_app.deploy(
            AFTER.replace("first = await tell(greeting)", 'first = await tell("hello")')
        )
        deployed_app.start_workers()
        await SettableClock(app).advance(timedelta(days=8))
        await wait_for_row(
            deployed_app.dsn, "select count(*) from rota.quarantine", (1,), within=60
        )
        assert await fetch_row(deployed_app.dsn, EFFECTS) == (["welcome ada 1"],)

        await deployed_app.manned()  # one worker alone may have done this, while the other starts
        assert await asyncio.to_thread(deployed_app.stop_workers) == [0, 0]
        deployed_app.deploy(AFTER)
        deployed_app.start_workers()
        assert await run.release() == 1
        await run.signal("reply", "fine")
        told = ["welcome ada by 1", "remind ada by 2", "fine", "thank ada by 2"]
        assert await run.result(timeout=60) == told

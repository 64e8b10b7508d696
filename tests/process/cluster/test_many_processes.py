"""Many worker processes on one database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota import Context, Rota, Task
from rota.localpg import LocalPostgres
from support.fleet import Fleet, fetch_row, wait_for_row
from support.scale import scale

pytestmark = pytest.mark.slow


def producer(dsn: str) -> Rota:
    app = Rota(dsn)

    @app.task
    async def note(ctx: Context, n: int) -> int:
        raise AssertionError("the producer does not work")

    return app


async def start_jobs(dsn: str, count: int) -> None:
    async with producer(dsn) as app:
        task: Task[[int], int] = Task(app, app.registry.tasks["note"])
        await app.start_many([task.bind(n) for n in range(count)])


JOBS = scale(20_000, 50_000)


async def test_workers_in_eight_processes_run_each_job_once(rota_dsn: str, fleet: Fleet) -> None:
    await start_jobs(rota_dsn, JOBS)
    fleet.start(rota_dsn, 8)
    await wait_for_row(rota_dsn, "select count(*) from rota.outcomes", (JOBS,), within=90)

    assert fleet.stop() == [0] * 8
    notes = fleet.notes()
    assert len(notes) == JOBS
    assert set(notes.values()) == {1}
    assert await fetch_row(
        rota_dsn,
        "select (select count(*) from rota.queued), (select count(*) from rota.claims), "
        "(select count(*) from rota.workers where state <> 'stopped'), "
        "(select count(distinct worker) > 1 from rota.outcomes)",
    ) == (0, 0, 0, True)


async def test_workers_with_killed_server_lose_no_job(tmp_path: Path, fleet: Fleet) -> None:
    """The postmaster is killed with SIGKILL three times, with fsync on.

    Every job gets exactly one outcome.
    """
    server = LocalPostgres(tmp_path / "pg", profile="dev")
    dsn = server.start()
    try:
        async with producer(dsn) as app:
            await app.migrate()
        fleet.start(dsn, 2)
        # A worker that starts without a server exits with an error, so wait until both are active.
        await wait_for_row(
            dsn, "select count(*) from rota.workers where state = 'active'", (2,), within=60
        )
        await start_jobs(dsn, 30_000)
        for done in (3_000, 10_000, 18_000):
            await wait_for_row(
                dsn, f"select count(*) >= {done} from rota.outcomes", (True,), within=60
            )
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)

        await wait_for_row(dsn, "select count(*) from rota.outcomes", (30_000,), within=60)

        assert fleet.stop() == [0, 0]
        assert len(fleet.notes()) == 30_000
        assert await fetch_row(
            dsn,
            "select (select count(*) from rota.queued), (select count(*) from rota.claims), "
            "(select count(*) from rota.outcomes where state = 'succeeded')",
        ) == (0, 0, 30_000)
    finally:
        server.stop()

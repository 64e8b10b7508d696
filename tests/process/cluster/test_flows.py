"""Flows whose jobs finish in several processes at the same moment, with the race window held open."""

from __future__ import annotations

import pytest
from psycopg import AsyncConnection

from rota import Rota
from support.fleet import Fleet, fetch_row, wait_for_row
from support.places import PROGRAMS
from support.programs.flow_app import WIDTH, define

pytestmark = pytest.mark.slow

WORKERS = 8
JOBS = WIDTH + 2

# Keeps every transaction that records outcomes open a little longer.
SLOW_COMMIT = """
create function public.linger() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.002); return null; end $$;
create constraint trigger linger after insert on rota.outcomes
    deferrable initially deferred for each row execute function public.linger()
"""

LOCK = "for update offset 0"


@pytest.fixture
def flow_fleet(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Fleet that runs the flow of flow_app.py."""
    monkeypatch.setattr("support.fleet.APP", PROGRAMS / "flow_app.py")
    return fleet


async def start_runs(dsn: str, many: int) -> None:
    async with Rota(dsn) as app:
        flow = define(app, lambda *_: None)
        await app.start_many([flow.bind(n=n) for n in range(many)])


async def prepare(dsn: str, *, mutant: bool = False) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(SLOW_COMMIT)
        if mutant:
            cursor = await connection.execute(
                "select pg_get_functiondef('rota.release_successors'::regproc)"
            )
            row = await cursor.fetchone()
            assert row is not None
            assert LOCK in row[0], "release_successors has changed: the mutant must be updated"
            await connection.execute(row[0].replace(LOCK, "offset 0"))


QUIET = (
    "select (select count(*) from rota.queued) + (select count(*) from rota.claims)"
    " + (select count(*) from rota.pending_releases)"
)


async def test_flows_in_eight_processes_strand_no_run_and_repeat_no_job(
    rota_dsn: str, flow_fleet: Fleet
) -> None:
    many = 240
    await prepare(rota_dsn)
    await start_runs(rota_dsn, many)
    flow_fleet.start(rota_dsn, WORKERS, concurrency=4)
    await wait_for_row(
        rota_dsn, "select count(*) from rota.outcomes", (many * (JOBS + 1),), within=60
    )

    assert flow_fleet.stop() == [0] * WORKERS
    notes = flow_fleet.notes()
    assert len(notes) == many * JOBS
    assert set(notes.values()) == {1}
    assert await fetch_row(
        rota_dsn,
        "select (select count(*) from rota.queued), (select count(*) from rota.claims),"
        " (select count(*) from rota.waiting), (select count(*) from rota.pending_releases),"
        " (select count(*) from rota.outcomes where state <> 'succeeded'),"
        " (select count(distinct worker) > 1 from rota.outcomes),"
        " (select deadlocks from pg_stat_database where datname = current_database())",
    ) == (0, 0, 0, 0, 0, True, 0)


async def test_flows_without_successor_lock_strand_runs(rota_dsn: str, flow_fleet: Fleet) -> None:
    """Mutant: shows that the test above can fail."""
    many = 100
    await prepare(rota_dsn, mutant=True)
    flow_fleet.start(rota_dsn, WORKERS, concurrency=4)
    # Wait for all workers: the first one alone would run most of the jobs.
    await wait_for_row(rota_dsn, "select count(*) from rota.workers", (WORKERS,), within=60)
    await start_runs(rota_dsn, many)
    # Every part has run, and no job moves after that.
    await wait_for_row(
        rota_dsn,
        "select count(*) from rota.outcomes join rota.jobs on id = job where task like 'fan.part%'",
        (many * WIDTH,),
        within=60,
    )
    await wait_for_row(rota_dsn, QUIET, (0,), within=60)

    flow_fleet.stop()
    stranded = await fetch_row(rota_dsn, "select count(*) > 0 from rota.waiting")
    assert stranded == (True,)

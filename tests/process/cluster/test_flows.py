"""Flows whose jobs finish in several processes at the same moment, with the race window held open."""

from __future__ import annotations

import pytest

from support.fleet import Fleet, fetch_row, wait_for_row
from support.flow_races import WORKERS, prepare, start_runs
from support.programs.flow_app import WIDTH

pytestmark = pytest.mark.slow

JOBS = WIDTH + 2


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

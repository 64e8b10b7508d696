"""A mutant without the lock on successors: it strands runs."""

from __future__ import annotations

import pytest

from support.fleet import Fleet, fetch_row, wait_for_row
from support.flow_races import WORKERS, prepare, start_runs
from support.programs.flow_app import WIDTH

pytestmark = pytest.mark.slow

QUIET = (
    "select (select count(*) from rota.queued) + (select count(*) from rota.claims)"
    " + (select count(*) from rota.pending_releases)"
)


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

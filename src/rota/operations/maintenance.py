"""Operations on the whole database: counts of jobs and workers, checks, deletion of old runs."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.engine.diagnosis.doctor import run_checks
from rota.engine.maintenance.pruner import prune
from rota.errors import Busy
from rota.model.access import Role
from rota.model.check_result import CheckResult
from rota.model.retention import FOREVER, Retention
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import Cursor, Next, decode_id_cursor, encode_cursor
from rota.store import metrics
from rota.store.read import runs
from rota.store.retention import PrunableRow

group = OperationGroup("fleet")

TURN_TIMEOUT_SECONDS = 30.0
"""Time to wait for another process that is removing runs; each batch takes a fraction of a second."""


class Overview(msgspec.Struct, frozen=True):
    queued: int
    sleeping: int
    running: int
    quarantined: int
    workers: Annotated[dict[str, int], Meta(description="Workers by state.")]
    open_alerts: int
    paused_queues: list[str]


@group.operation("GET /overview", Role.VIEWER)
async def overview(context: OperationContext) -> Overview:
    """Count jobs, workers and open alerts."""
    [jobs], [fleet], [alerts] = await context.read(
        runs.state_counts(),
        metrics.fleet_totals(context.app.settings.dead_after),
        runs.count_open_alerts(),
    )
    return Overview(
        jobs.queued,
        jobs.sleeping,
        jobs.running,
        jobs.quarantined,
        fleet.workers,
        alerts,
        fleet.paused_queues,
    )


class Checks(msgspec.Struct, frozen=True):
    healthy: Annotated[bool, Meta(description="False if a check found a problem.")]
    seconds: Annotated[float, Meta(description="Duration of all checks.")]
    checks: list[CheckResult]


@group.operation("GET /doctor", Role.VIEWER)
async def check_database(context: OperationContext) -> Checks:
    """Check the database: server, schema, jobs that no worker can run. Each finding has a fix."""
    database = (await context.app.open()).database
    began = time.perf_counter()
    found = [each async for each in run_checks(database, lambda: datetime.now(UTC))]
    healthy = all(each.level != "problem" for each in found)
    return Checks(healthy, round(time.perf_counter() - began, 3), found)


class PruneRunsRequest(msgspec.Struct, forbid_unknown_fields=True):
    retention: (
        Annotated[str, Meta(max_length=4000, description="Rules in place of ROTA_RETENTION.")]
        | None
    ) = None
    dry_run: Annotated[bool, Meta(description="Count the runs, and delete nothing.")] = False
    cursor: Cursor | None = None


class PrunedBatchDocument(msgspec.Struct, frozen=True):
    pruned: list[PrunableRow]
    next: Annotated[Next, Meta(description="Cursor of the next batch; null after the last.")] | None


@group.operation("POST /runs/prune", Role.ADMIN, audit="prune runs", refuses=(Busy,))
async def prune_runs(context: OperationContext, body: PruneRunsRequest) -> PrunedBatchDocument:
    """Delete a batch of finished runs that are older than the retention allows. Repeat with `cursor` =
    `next` until it is null.
    """
    rules = Retention.parse(body.retention or context.app.settings.retention)
    if rules.min_age == FOREVER:
        return PrunedBatchDocument([], None)
    database = (await context.app.open()).database
    after = decode_id_cursor(body.cursor, 0)
    deadline = time.monotonic() + TURN_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        batch = await prune(database, rules, after, dry_run=body.dry_run, by=context.caller.name)
        if batch is not None:
            next = encode_cursor(str(batch.position)) if batch.has_more else None
            return PrunedBatchDocument(batch.rows, next)
        await asyncio.sleep(0.02)
    raise Busy(
        f"another process has been removing runs for {TURN_TIMEOUT_SECONDS:g} s without a pause; "
        "try again later"
    )

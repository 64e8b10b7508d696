"""Operations on the whole database: counts of jobs and workers."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model.access import Role
from rota.operations.declare import OperationContext, OperationGroup
from rota.store import metrics
from rota.store.read import runs

group = OperationGroup("fleet")


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

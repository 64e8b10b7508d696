"""Operations on workers: list, drain."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.errors import WorkerNotFound
from rota.model.access import Role
from rota.model.document import Id
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import PathId, extend
from rota.store.read import runs
from rota.store.read.runs import WorkerDetailRow

group = OperationGroup("fleet")


class WorkerListQuery(msgspec.Struct, forbid_unknown_fields=True):
    include_ended: Annotated[bool, Meta(description="Also list workers that stopped or died.")] = (
        False
    )


class WorkerList(msgspec.Struct, frozen=True):
    workers: list[WorkerDetailRow]


class DrainingWorker(msgspec.Struct, frozen=True):
    worker: Id


@group.operation("GET /workers", Role.VIEWER)
async def list_workers(context: OperationContext, query: WorkerListQuery) -> WorkerList:
    """List workers."""
    found, [now] = await context.read(
        runs.workers(include_ended=query.include_ended), runs.database_time()
    )
    return WorkerList([_with_state(context, each, now) for each in found])


class WorkerDetail(WorkerDetailRow, frozen=True):
    """A worker with the jobs it holds."""

    silent_seconds: Annotated[float, Meta(description="Seconds since the last heartbeat.")]
    held_jobs: Annotated[int, Meta(description="Jobs that it has claimed and not completed.")]


@group.operation("GET /workers/{worker}", Role.VIEWER, refuses=(WorkerNotFound,))
async def show_worker(context: OperationContext, worker: PathId) -> WorkerDetail:
    """Show a worker with its state and the number of jobs it holds."""
    found, details, [now] = await context.read(
        runs.worker(worker), runs.workers(worker, include_ended=True), runs.database_time()
    )
    if not found or not details:
        raise WorkerNotFound(f"there is no worker {worker}; `rota workers --all` lists them")
    return extend(
        WorkerDetail,
        _with_state(context, details[0], now),
        silent_seconds=found[0].silent_seconds,
        held_jobs=found[0].held_jobs,
    )


@group.operation(
    "POST /workers/{worker}/drain",
    Role.OPERATOR,
    status=202,
    audit="drain worker",
    refuses=(WorkerNotFound,),
)
async def drain_worker(context: OperationContext, worker: PathId) -> DrainingWorker:
    """Drain a worker on any instance: it finishes its running jobs and stops."""
    await context.app.drain(worker, by=context.caller.name)
    return DrainingWorker(worker)


def _with_state(context: OperationContext, row: WorkerDetailRow, now: datetime) -> WorkerDetailRow:
    state = worker_state(row, now, context.app.settings.dead_after)
    return msgspec.structs.replace(row, state=state)


def worker_state(row: WorkerDetailRow, now: datetime, dead_after: float) -> str:
    """Return the state: silent if the heartbeat is late, draining as soon as it was requested."""
    if row.ended is None and (now - row.last_beat).total_seconds() > dead_after:
        return "silent"
    if row.state == "active" and row.drain_requested is not None:
        return "draining"  # the worker receives the request with its next heartbeat
    return row.state

"""Operations on queues: list, pause, resume; jobs in quarantine."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.errors import ArgumentError
from rota.model.access import Role
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    Cursor,
    Limit,
    Name,
    Next,
    cut_page,
    decode_id_cursor,
    encode_cursor,
)
from rota.operations.refusals import NotFound
from rota.store import metrics, queues
from rota.store.queues import PauseRow
from rota.store.read import runs

group = OperationGroup("fleet")

RELEASE_JOBS = 200
"""Jobs released by one request."""


class QueueList(msgspec.Struct, frozen=True):
    queues: list[runs.QueueRow]
    paused: list[PauseRow]


class PauseQueueRequest(msgspec.Struct, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(max_length=1000)] = ""


class QueueState(msgspec.Struct, frozen=True):
    queue: str
    paused: bool
    changed: Annotated[bool, Meta(description="False if the queue already had this state.")]


class QuarantineListQuery(msgspec.Struct, forbid_unknown_fields=True):
    task: Name | None = None
    queue: Name | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class QuarantineList(msgspec.Struct, frozen=True):
    jobs: list[runs.QuarantineRow]
    next: Next | None


@group.operation("GET /queues", Role.VIEWER)
async def list_queues(context: OperationContext) -> QueueList:
    """List queued jobs by queue and task, and the paused queues."""
    found, paused = await context.read(runs.queues(), queues.list_paused())
    return QueueList(found, paused)


@group.operation("POST /queues/{queue:path}/pause", Role.OPERATOR, audit="pause queue")
async def pause_queue(
    context: OperationContext, queue: Name, body: PauseQueueRequest
) -> QueueState:
    """Pause a queue: running jobs continue, queued jobs are not claimed."""
    changed = await context.app.queues.pause(queue, body.reason, by=context.caller.name)
    return QueueState(queue, True, changed)


@group.operation("POST /queues/{queue:path}/resume", Role.OPERATOR, audit="resume queue")
async def resume_queue(context: OperationContext, queue: Name) -> QueueState:
    """Resume a queue."""
    changed = await context.app.queues.resume(queue, by=context.caller.name)
    return QueueState(queue, False, changed)


class AutoscaleQuery(msgspec.Struct, forbid_unknown_fields=True):
    queue: Name | None = None
    target: (
        Annotated[float, Meta(gt=0, le=3.2e9, description="Seconds to clear a backlog.")] | None
    ) = None
    min: Annotated[int, Meta(ge=0, le=100_000, description="Minimum of workers.")] | None = None
    max: Annotated[int, Meta(ge=0, le=100_000, description="Maximum of workers.")] | None = None
    concurrency: (
        Annotated[int, Meta(ge=1, le=100_000, description="Concurrency of one worker.")] | None
    ) = None


class DesiredWorkersList(msgspec.Struct, frozen=True):
    queues: list[metrics.DesiredWorkersRow]


@group.operation("GET /autoscale", Role.VIEWER, refuses=(NotFound,))
async def autoscale(context: OperationContext, query: AutoscaleQuery) -> DesiredWorkersList:
    """List how many workers each queue needs, and why. Settings are used for absent parameters."""
    settings = context.app.settings
    low = settings.autoscale_min if query.min is None else query.min
    high = settings.autoscale_max if query.max is None else query.max
    if low > high:
        raise ArgumentError(f"--min is {low}, above --max, which is {high}")
    target = query.target or settings.autoscale_target
    [found] = await context.read(
        metrics.desired_workers(target, low, high, query.concurrency, query.queue)
    )
    if query.queue is not None and not any(map(_is_known, found)):
        raise NotFound(f"there is no queue {query.queue!r}; see `rota queues`")
    return DesiredWorkersList(found)


def _is_known(row: metrics.DesiredWorkersRow) -> bool:
    """True if there is any data about the queue besides its name."""
    return bool(row.workers or row.backlog or row.arrival_rate or row.mean_seconds)


@group.operation("GET /quarantine", Role.VIEWER)
async def list_quarantine(context: OperationContext, query: QuarantineListQuery) -> QuarantineList:
    """List jobs in quarantine: their workers crashed too often, or their code has changed. POST
    /runs/{run}/release retries one.
    """
    after = decode_id_cursor(query.cursor, 0)
    [found] = await context.read(runs.quarantine(query.task, query.queue, after, query.limit + 1))
    return QuarantineList(*cut_page(found, query.limit, "job"))


class ReleaseRunsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs in quarantine to release: those that match, or all."""

    task: Name | None = None
    queue: Name | None = None
    cursor: Cursor | None = None


class ReleasedBatch(msgspec.Struct, frozen=True):
    released: Annotated[int, Meta(description="Jobs released from quarantine.")]
    next: Annotated[Next, Meta(description="Cursor of the next batch; null after the last.")] | None


@group.operation("POST /quarantine/release", Role.OPERATOR, audit="release run")
async def release_runs(context: OperationContext, body: ReleaseRunsRequest) -> ReleasedBatch:
    """Release a batch of matching jobs from quarantine. Repeat with `cursor` = `next` until it is null."""
    after = decode_id_cursor(body.cursor, 0)
    [found] = await context.read(runs.quarantine(body.task, body.queue, after, RELEASE_JOBS))
    released = 0
    for each in found:
        released += await context.app.run(each.job).release(by=context.caller.name)
    is_last = len(found) < RELEASE_JOBS
    return ReleasedBatch(released, None if is_last else encode_cursor(str(found[-1].job)))

"""API operations of the fleet: workers, queues, quarantine and alerts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.model.access import Role
from rota.store import alerts, queues
from rota.store.query import Query
from rota.store.read import coordination, runs
from rota.web.api.router import RequestContext, Router
from rota.web.api.schema_types import (
    Cursor,
    ErrorDetail,
    Id,
    Limit,
    Name,
    Next,
    PathId,
    decode_id_cursor,
    encode_cursor,
    error_detail,
    to_document,
)
from rota.web.responses import HttpError

router = Router("fleet")


# Workers


class WorkerDocument(msgspec.Struct, frozen=True):
    worker: Id
    state: Annotated[str, Meta(description="active, draining, stopped or dead.")]
    host: str
    pid: int
    version: str
    rota_version: str
    queues: list[str]
    tasks: list[str]
    capacity: int
    running: int
    lag: float
    started: datetime
    last_beat: datetime
    drain_requested: (
        Annotated[datetime, Meta(description="Time at which it was asked to drain.")] | None
    )
    ended: datetime | None
    charged_jobs: Annotated[list[Id], Meta(description="Jobs that caused its death.")]
    metadata: msgspec.Raw


class WorkerListQuery(msgspec.Struct, forbid_unknown_fields=True):
    include_ended: Annotated[bool, Meta(description="Also list workers that stopped or died.")] = (
        False
    )


class WorkerList(msgspec.Struct, frozen=True):
    workers: list[WorkerDocument]


class DrainingWorker(msgspec.Struct, frozen=True):
    worker: Id


@router.add("GET", "/workers", Role.VIEWER)
async def list_workers(context: RequestContext, query: WorkerListQuery) -> WorkerList:
    """List workers."""
    [found] = await context.read(runs.workers(include_ended=query.include_ended))
    return WorkerList(
        [to_document(WorkerDocument, each, metadata=msgspec.Raw(each.metadata)) for each in found]
    )


@router.add("POST", "/workers/{worker}/drain", Role.OPERATOR, status=202, error_statuses=(404,))
async def drain_worker(context: RequestContext, worker: PathId) -> DrainingWorker:
    """Drain a worker on any instance: it finishes its running jobs and stops."""
    await context.app.drain(worker, by=context.caller.name)
    return DrainingWorker(str(worker))


# Queues


class QueueDocument(msgspec.Struct, frozen=True):
    queue: str
    task: str
    queued: int
    oldest: (
        Annotated[float, Meta(description="Seconds that the oldest job has been queued.")] | None
    )
    workers: Annotated[int, Meta(description="Workers that can run the task.")]
    quarantined: int


class PausedQueue(msgspec.Struct, frozen=True):
    """A paused queue, from which no job is claimed. Operator and reason are absent for viewers."""

    queue: str
    since: datetime
    operator: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class QueueList(msgspec.Struct, frozen=True):
    queues: list[QueueDocument]
    paused: list[PausedQueue]


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


class QuarantinedJob(msgspec.Struct, frozen=True):
    job: Id
    run: Id
    task: str
    queue: str
    attempt: int
    crashes: int
    since: datetime
    error: ErrorDetail | None


class QuarantineList(msgspec.Struct, frozen=True):
    jobs: list[QuarantinedJob]
    next: Next | None


@router.add("GET", "/queues", Role.VIEWER)
async def list_queues(context: RequestContext) -> QueueList:
    """List queued jobs by queue and task, and the paused queues."""
    found, paused = await context.read(runs.queues(), queues.list_paused())
    hidden = {} if context.may_see_payloads else {"operator": UNSET, "reason": UNSET}
    return QueueList(
        [to_document(QueueDocument, each) for each in found],
        [to_document(PausedQueue, each, **hidden) for each in paused],
    )


@router.add("POST", "/queues/{queue:path}/pause", Role.OPERATOR)
async def pause_queue(context: RequestContext, queue: Name, body: PauseQueueRequest) -> QueueState:
    """Pause a queue: running jobs continue, queued jobs are not claimed."""
    changed = await context.app.queues.pause(queue, body.reason, by=context.caller.name)
    return QueueState(queue, True, changed)


@router.add("POST", "/queues/{queue:path}/resume", Role.OPERATOR)
async def resume_queue(context: RequestContext, queue: Name) -> QueueState:
    """Resume a queue."""
    changed = await context.app.queues.resume(queue, by=context.caller.name)
    return QueueState(queue, False, changed)


@router.add("GET", "/quarantine", Role.VIEWER)
async def list_quarantine(context: RequestContext, query: QuarantineListQuery) -> QuarantineList:
    """List jobs in quarantine: their workers crashed too often, or their code has changed. POST
    /runs/{run}/release retries one.
    """
    after = decode_id_cursor(query.cursor, 0)
    [found] = await context.read(runs.quarantine(query.task, query.queue, after, query.limit + 1))
    page = [
        to_document(
            QuarantinedJob, each, error=error_detail(each.error, visible=context.may_see_payloads)
        )
        for each in found[: query.limit]
    ]
    return QuarantineList(page, encode_cursor(page[-1].job) if len(found) > query.limit else None)


# Alerts


class AlertDocument(msgspec.Struct, frozen=True):
    id: Id
    kind: str
    subject: str
    message: str
    raised: datetime
    cleared: datetime | None
    host: str
    pid: int
    acknowledged_until: Annotated[datetime, Meta(description="End of the acknowledgement.")] | None
    acknowledged_by: str | None
    closed_by: (
        Annotated[str, Meta(description="null if it is open or was closed automatically.")] | None
    )


class AlertListQuery(msgspec.Struct, forbid_unknown_fields=True):
    include_closed: Annotated[bool, Meta(description="Also list closed alerts.")] = False
    limit: Limit = 50


class AlertList(msgspec.Struct, frozen=True):
    alerts: list[AlertDocument]


class AcknowledgeAlertRequest(msgspec.Struct, forbid_unknown_fields=True):
    kind: Name
    subject: (
        Annotated[str, Meta(max_length=1000, description="null: every alert of this kind.")] | None
    ) = None
    seconds: Annotated[
        float, Meta(gt=0, le=3.2e7, description="Duration of the acknowledgement, in seconds.")
    ] = 3600.0


class DismissAlertRequest(msgspec.Struct, forbid_unknown_fields=True):
    kind: Name
    subject: (
        Annotated[str, Meta(max_length=1000, description="null: every alert of this kind.")] | None
    ) = None


class AlertSubject(msgspec.Struct, frozen=True):
    kind: str
    subject: str


class AlertSubjects(msgspec.Struct, frozen=True):
    alerts: list[AlertSubject]


@router.add("GET", "/alerts", Role.VIEWER)
async def list_alerts(context: RequestContext, query: AlertListQuery) -> AlertList:
    """List alerts, the latest first."""
    [found] = await context.read(
        coordination.alerts(include_closed=query.include_closed, limit=query.limit)
    )
    return AlertList([to_document(AlertDocument, each) for each in found])


@router.add("POST", "/alerts/acknowledge", Role.OPERATOR, error_statuses=(404,))
async def acknowledge_alerts(
    context: RequestContext, body: AcknowledgeAlertRequest
) -> AlertSubjects:
    """Acknowledge alerts: no further notifications are sent for the given time."""
    query = alerts.acknowledge(body.kind, body.subject, body.seconds, context.caller.name)
    return await _change_alerts(context, query)


@router.add("POST", "/alerts/dismiss", Role.OPERATOR, error_statuses=(404,))
async def dismiss_alerts(context: RequestContext, body: DismissAlertRequest) -> AlertSubjects:
    """Close alerts. An alert is raised again if its condition persists."""
    return await _change_alerts(
        context, alerts.dismiss(body.kind, body.subject, context.caller.name)
    )


async def _change_alerts(
    context: RequestContext, query: Query[alerts.ClosedAlert]
) -> AlertSubjects:
    found = await (await context.app.open()).database.run(query)
    if not found:
        raise HttpError(404, "not_found", "no such alert is open")
    return AlertSubjects([to_document(AlertSubject, each) for each in found])

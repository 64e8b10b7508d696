"""Operations on queues: list, pause, resume; jobs in quarantine."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.model.access import Role
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    Cursor,
    ErrorDetail,
    Id,
    Limit,
    Name,
    Next,
    decode_id_cursor,
    encode_cursor,
    error_detail,
    to_document,
)
from rota.store import queues
from rota.store.read import runs

group = OperationGroup("fleet")


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


@group.operation("GET /queues", Role.VIEWER)
async def list_queues(context: OperationContext) -> QueueList:
    """List queued jobs by queue and task, and the paused queues."""
    found, paused = await context.read(runs.queues(), queues.list_paused())
    hidden = {} if context.may_see_payloads else {"operator": UNSET, "reason": UNSET}
    return QueueList(
        [to_document(QueueDocument, each) for each in found],
        [to_document(PausedQueue, each, **hidden) for each in paused],
    )


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


@group.operation("GET /quarantine", Role.VIEWER)
async def list_quarantine(context: OperationContext, query: QuarantineListQuery) -> QuarantineList:
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

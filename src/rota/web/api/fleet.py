"""Who is there and how it goes, over HTTP: workers, queues, quarantine, alerts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.model.access import Role
from rota.store import alerts, queues, standing, views
from rota.store.query import Query
from rota.web.answers import Refused
from rota.web.api.operations import Desk, Table
from rota.web.api.shapes import (
    Cursor,
    Failure,
    Id,
    Limit,
    Name,
    Next,
    Number,
    cursor,
    failure,
    number,
    shape,
)

table = Table("fleet")


# Workers


class Worker(msgspec.Struct, frozen=True):
    worker: Id
    state: Annotated[str, Meta(description="active, draining, stopped or dead.")]
    host: str
    pid: int
    version: str
    engine: str
    queues: list[str]
    tasks: list[str]
    capacity: int
    running: int
    lag: float
    started: datetime
    beat: datetime
    asked: Annotated[datetime, Meta(description="When somebody asked it to leave.")] | None
    ended: datetime | None
    blamed: Annotated[list[Id], Meta(description="Jobs it died of, or with.")]
    metadata: msgspec.Raw


class WorkersQuery(msgspec.Struct, forbid_unknown_fields=True):
    gone: Annotated[bool, Meta(description="Also those that have left or died.")] = False


class Workers(msgspec.Struct, frozen=True):
    workers: list[Worker]


class Drained(msgspec.Struct, frozen=True):
    worker: Id


@table.add("GET", "/workers", Role.VIEWER)
async def list_workers(desk: Desk, query: WorkersQuery) -> Workers:
    """Workers that are there."""
    [found] = await desk.ask(views.workers(gone=query.gone))
    return Workers([shape(Worker, each, metadata=msgspec.Raw(each.metadata)) for each in found])


@table.add("POST", "/workers/{worker}/drain", Role.OPERATOR, status=202, fails=(404,))
async def drain_worker(desk: Desk, worker: Number) -> Drained:
    """Ask a worker, wherever it runs, to finish what it has and leave."""
    await desk.app.drain(worker, by=desk.caller.name)
    return Drained(str(worker))


# Queues


class Queue(msgspec.Struct, frozen=True):
    queue: str
    task: str
    ready: int
    oldest: Annotated[float, Meta(description="Seconds that the oldest has been ready.")] | None
    workers: Annotated[int, Meta(description="Those that would take it.")]
    quarantined: int


class Paused(msgspec.Struct, frozen=True):
    """A queue from which nothing is claimed. By whom and why is absent for viewers."""

    queue: str
    since: datetime
    who: str | UnsetType = UNSET
    why: str | UnsetType = UNSET


class Queues(msgspec.Struct, frozen=True):
    queues: list[Queue]
    paused: list[Paused]


class PauseQueue(msgspec.Struct, forbid_unknown_fields=True):
    why: Annotated[str, Meta(max_length=1000)] = ""


class QueueState(msgspec.Struct, frozen=True):
    queue: str
    paused: bool
    changed: Annotated[bool, Meta(description="False: it was so already.")]


class QuarantineQuery(msgspec.Struct, forbid_unknown_fields=True):
    task: Name | None = None
    queue: Name | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class Quarantined(msgspec.Struct, frozen=True):
    job: Id
    run: Id
    task: str
    queue: str
    attempt: int
    crashes: int
    since: datetime
    error: Failure | None


class Quarantine(msgspec.Struct, frozen=True):
    jobs: list[Quarantined]
    next: Next | None


@table.add("GET", "/queues", Role.VIEWER)
async def list_queues(desk: Desk) -> Queues:
    """What waits in each queue, by task, and which are paused."""
    found, paused = await desk.ask(views.queues(), queues.paused())
    hidden = {} if desk.shows else {"who": UNSET, "why": UNSET}
    return Queues(
        [shape(Queue, each) for each in found], [shape(Paused, each, **hidden) for each in paused]
    )


@table.add("POST", "/queues/{queue:path}/pause", Role.OPERATOR)
async def pause_queue(desk: Desk, queue: Name, body: PauseQueue) -> QueueState:
    """Have nobody claim from a queue, from now on: what runs ends as ever, what is ready waits."""
    changed = await desk.app.queues.pause(queue, body.why, by=desk.caller.name)
    return QueueState(queue, True, changed)


@table.add("POST", "/queues/{queue:path}/resume", Role.OPERATOR)
async def resume_queue(desk: Desk, queue: Name) -> QueueState:
    """Have its jobs claimed again."""
    changed = await desk.app.queues.resume(queue, by=desk.caller.name)
    return QueueState(queue, False, changed)


@table.add("GET", "/quarantine", Role.VIEWER)
async def list_quarantine(desk: Desk, query: QuarantineQuery) -> Quarantine:
    """Jobs that workers died of too often, or whose code has changed; POST /runs/{run}/release tries one
    again."""
    after = number(query.cursor, 0)
    [found] = await desk.ask(views.quarantine(query.task, query.queue, after, query.limit + 1))
    page = [
        shape(Quarantined, each, error=failure(each.error, shown=desk.shows))
        for each in found[: query.limit]
    ]
    return Quarantine(page, cursor(page[-1].job) if len(found) > query.limit else None)


# Alerts


class Alert(msgspec.Struct, frozen=True):
    id: Id
    kind: str
    subject: str
    message: str
    raised: datetime
    cleared: datetime | None
    host: str
    pid: int
    acknowledged: Annotated[datetime, Meta(description="Until then somebody sees to it.")] | None
    who: str | None
    closed_by: Annotated[str, Meta(description="null: it was over by itself, or is not.")] | None


class AlertsQuery(msgspec.Struct, forbid_unknown_fields=True):
    over: Annotated[bool, Meta(description="Also those that are over.")] = False
    limit: Limit = 50


class Alerts(msgspec.Struct, frozen=True):
    alerts: list[Alert]


class Acknowledge(msgspec.Struct, forbid_unknown_fields=True):
    kind: Name
    subject: Annotated[str, Meta(max_length=1000, description="null: all of that kind.")] | None = (
        None
    )
    seconds: Annotated[
        float, Meta(gt=0, le=3.2e7, description="For so long nobody is told of it.")
    ] = 3600.0


class Dismiss(msgspec.Struct, forbid_unknown_fields=True):
    kind: Name
    subject: Annotated[str, Meta(max_length=1000, description="null: all of that kind.")] | None = (
        None
    )


class Subject(msgspec.Struct, frozen=True):
    kind: str
    subject: str


class Subjects(msgspec.Struct, frozen=True):
    alerts: list[Subject]


@table.add("GET", "/alerts", Role.VIEWER)
async def list_alerts(desk: Desk, query: AlertsQuery) -> Alerts:
    """What somebody should look at, the last first."""
    [found] = await desk.ask(standing.alerts(over=query.over, limit=query.limit))
    return Alerts([shape(Alert, each) for each in found])


@table.add("POST", "/alerts/acknowledge", Role.OPERATOR, fails=(404,))
async def acknowledge_alerts(desk: Desk, body: Acknowledge) -> Subjects:
    """Say that somebody sees to it: for a while nobody is told of it again."""
    query = alerts.acknowledge(body.kind, body.subject, body.seconds, desk.caller.name)
    return await _alerts(desk, query)


@table.add("POST", "/alerts/dismiss", Role.OPERATOR, fails=(404,))
async def dismiss_alerts(desk: Desk, body: Dismiss) -> Subjects:
    """Close it by hand; it is raised anew if it is still so."""
    return await _alerts(desk, alerts.dismiss(body.kind, body.subject, desk.caller.name))


async def _alerts(desk: Desk, query: Query[alerts.Closed]) -> Subjects:
    found = await (await desk.app.open()).database.run(query)
    if not found:
        raise Refused(404, "not_found", "no such alert is open")
    return Subjects([shape(Subject, each) for each in found])

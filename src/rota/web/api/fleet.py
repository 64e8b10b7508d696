"""Who is there and what is held, over HTTP: workers, queues, locks, leaders, services, alerts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from rota.errors import Busy
from rota.model.access import Role
from rota.store import alerts, audit, failures, standing, views
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


class Queues(msgspec.Struct, frozen=True):
    queues: list[Queue]


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
    """What waits in each queue, by task."""
    [found] = await desk.ask(views.queues())
    return Queues([shape(Queue, each) for each in found])


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


# Locks, leaders, services


class Lock(msgspec.Struct, frozen=True):
    name: str
    permit: Annotated[int, Meta(description="0: it is a lock.")]
    token: Id
    held: bool
    instance: UUID | None
    host: str | None
    pid: int | None
    label: str | None
    acquired: datetime | None
    expires: datetime | None
    renewals: int
    wanted: Annotated[datetime, Meta(description="Since when somebody waits.")] | None


class LocksQuery(msgspec.Struct, forbid_unknown_fields=True):
    name: Name | None = None
    free: Annotated[bool, Meta(description="Also those that nobody holds.")] = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 200


class Locks(msgspec.Struct, frozen=True):
    locks: list[Lock]


class Release(msgspec.Struct, forbid_unknown_fields=True):
    permit: Annotated[int, Meta(ge=0, le=2**31 - 1, description="Of a semaphore: which.")] = 0


class Taken(msgspec.Struct, frozen=True):
    """Whose it was; nothing that asserts this token goes through any more."""

    host: str
    pid: int
    label: str
    token: Id
    age: float


class Leader(msgspec.Struct, frozen=True):
    name: str
    term: Id
    instance: UUID | None
    host: str | None
    pid: int | None
    label: str | None
    since: datetime | None
    expires: Annotated[datetime, Meta(description="null: it is held by a session.")] | None
    alive: bool
    elections: Annotated[int, Meta(description="Within an hour.")]


class Leaders(msgspec.Struct, frozen=True):
    leaders: list[Leader]


class Service(msgspec.Struct, frozen=True):
    name: str
    every: float | None
    host: Annotated[str, Meta(description="null: nobody runs it.")] | None
    pid: int | None
    since: datetime | None
    standing_by: list[str]
    iteration: Id | None
    started: datetime | None
    ended: datetime | None
    outcome: str | None
    error: Failure | None
    failures: int
    due: datetime | None


class Services(msgspec.Struct, frozen=True):
    services: list[Service]


@table.add("GET", "/locks", Role.VIEWER)
async def list_locks(desk: Desk, query: LocksQuery) -> Locks:
    """Locks and permits by name: those that are held, or have just run out."""
    [found] = await desk.ask(standing.locks(query.name, free=query.free, limit=query.limit))
    return Locks([shape(Lock, each) for each in found])


@table.add("POST", "/locks/{name:path}/release", Role.OPERATOR, fails=(404, 409))
async def release_lock(desk: Desk, name: Name, body: Release) -> Taken:
    """Take a lock, or a permit, from whoever holds it. Its holder hears of it when it next renews."""
    database = (await desk.app.open()).database
    try:
        taken = await database.one(audit.release(name, body.permit, desk.caller.name))
    except Exception as error:
        if failures.sqlstate(error) != "55P03":
            raise
        raise Busy(
            f"a transaction that relies on lock {name!r} is open; try again when it has ended"
        ) from None
    if taken is None:
        raise Refused(404, "not_found", f"nobody holds {name!r}")
    return shape(Taken, taken)


@table.add("GET", "/leaders", Role.VIEWER)
async def list_leaders(desk: Desk) -> Leaders:
    """Who leads what."""
    [found] = await desk.ask(standing.leaders())
    return Leaders([shape(Leader, each) for each in found])


@table.add("GET", "/services", Role.VIEWER)
async def list_services(desk: Desk) -> Services:
    """Services: who runs each, who stands by, and what became of its last iteration."""
    [found] = await desk.ask(standing.services())
    return Services(
        [shape(Service, each, error=failure(each.error, shown=desk.shows)) for each in found]
    )


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

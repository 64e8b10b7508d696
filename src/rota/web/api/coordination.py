"""What instances agree on, over HTTP: locks and permits, leaders, services, calls made once, rates."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta

from rota.errors import Busy
from rota.model.access import Role
from rota.store import audit, failures, standing
from rota.web.answers import Refused
from rota.web.api.operations import Desk, Table
from rota.web.api.shapes import (
    LARGEST,
    Cursor,
    Failure,
    Id,
    Limit,
    Name,
    Next,
    Stored,
    cursor,
    failure,
    place,
    shape,
    stored,
)

table = Table("coordination")


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
    token: (
        Annotated[Id, Meta(description="Only from who holds it under this one: who was looked at.")]
        | None
    ) = None


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
        token = None if body.token is None else min(int(body.token), LARGEST)
        taken = await database.one(audit.release(name, body.permit, desk.caller.name, token))
    except Exception as error:
        if failures.sqlstate(error) != "55P03":
            raise
        raise Busy(
            f"a transaction that relies on lock {name!r} is open; try again when it has ended"
        ) from None
    if taken is None and body.token is not None:
        raise Refused(
            409, "conflict", f"{name!r} is not held under token {body.token} any more; look again"
        )
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


# Calls made once, rates


class Once(msgspec.Struct, frozen=True):
    key: str
    token: Id
    host: Annotated[str, Meta(description="Who makes the call, or made it.")]
    pid: int
    label: str
    state: Annotated[str, Meta(description="running, finished or lost.")]
    began: datetime
    expires: datetime
    finished: datetime | None
    until: Annotated[datetime, Meta(description="So long it is kept; null: for good.")] | None
    result: Stored = UNSET


class OncesQuery(msgspec.Struct, forbid_unknown_fields=True):
    begins: Annotated[str, Meta(max_length=200, description="How its key begins.")] = ""
    limit: Limit = 50
    cursor: Cursor | None = None


class Onces(msgspec.Struct, frozen=True):
    onces: list[Once]
    next: Next | None


class Rate(msgspec.Struct, frozen=True):
    name: str
    apart: Annotated[float, Meta(description="Seconds from one to the next.")]
    used: Annotated[float, Meta(description="So many are not made up for yet.")]
    due: Annotated[datetime, Meta(description="By then all are.")]
    seen: datetime


class RatesQuery(msgspec.Struct, forbid_unknown_fields=True):
    limit: Limit = 50
    cursor: Cursor | None = None


class Rates(msgspec.Struct, frozen=True):
    rates: list[Rate]
    next: Next | None


@table.add("GET", "/onces", Role.VIEWER)
async def list_onces(desk: Desk, query: OncesQuery) -> Onces:
    """Calls that are made once for a key, by that key."""
    after = place(query.cursor) or ""
    [found] = await desk.ask(standing.onces(query.begins, after, query.limit + 1))
    page = [
        shape(Once, each, result=stored(each.result, shown=desk.shows))
        for each in found[: query.limit]
    ]
    return Onces(page, cursor(page[-1].key) if len(found) > query.limit else None)


@table.add("GET", "/rates", Role.VIEWER)
async def list_rates(desk: Desk, query: RatesQuery) -> Rates:
    """Rates by name, and how much of each is used up."""
    [found] = await desk.ask(standing.rates(place(query.cursor) or "", query.limit + 1))
    page = [shape(Rate, each) for each in found[: query.limit]]
    return Rates(page, cursor(page[-1].name) if len(found) > query.limit else None)

"""Operations of coordination: locks and semaphores, leaders, services, once calls, rate limits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta

from rota.model.access import Role
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    MAX_INT64,
    Cursor,
    ErrorDetail,
    Id,
    Limit,
    Name,
    Next,
    StoredJson,
    decode_cursor,
    encode_cursor,
    error_detail,
    stored_json,
    to_document,
)
from rota.operations.lock_release import lock_title, release_by_force
from rota.operations.refusals import Conflict, NotFound
from rota.store.advisory_locks import NAMESPACE_NAMES
from rota.store.read import coordination

group = OperationGroup("coordination")


# Locks, leaders, services


class LockDocument(msgspec.Struct, frozen=True):
    name: str
    permit: Annotated[int, Meta(description="Permit of a semaphore; 0 for a lock.")]
    token: Id
    held: bool
    instance: UUID | None
    host: str | None
    pid: int | None
    label: str | None
    acquired: datetime | None
    expires: datetime | None
    renewals: int
    max_held: Annotated[float, Meta(description="Seconds after which an alert is raised.")] | None
    awaited_since: Annotated[datetime, Meta(description="Time since which a client waits.")] | None


class LockListQuery(msgspec.Struct, forbid_unknown_fields=True):
    name: Name | None = None
    include_free: Annotated[bool, Meta(description="Also list free locks.")] = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 200


class LockList(msgspec.Struct, frozen=True):
    locks: list[LockDocument]


class ReleaseLockRequest(msgspec.Struct, forbid_unknown_fields=True):
    permit: Annotated[int, Meta(ge=0, le=2**31 - 1, description="Permit of a semaphore.")] = 0
    token: (
        Annotated[Id, Meta(description="Release only if it is held under this token.")] | None
    ) = None


class ReleasedLockDocument(msgspec.Struct, frozen=True):
    """The former holder of a released lock. Transactions that assert this token fail from now on."""

    host: str
    pid: int
    label: str
    token: Id
    age: float


class LeaderDocument(msgspec.Struct, frozen=True):
    name: str
    term: Id
    instance: UUID | None
    host: str | None
    pid: int | None
    label: str | None
    since: datetime | None
    expires: (
        Annotated[datetime, Meta(description="null for a leader that holds a session lock.")] | None
    )
    alive: bool
    elections: Annotated[int, Meta(description="Number of elections within the last hour.")]
    or_more: Annotated[bool, Meta(description="True if `elections` is a lower bound.")]


class LeaderList(msgspec.Struct, frozen=True):
    leaders: list[LeaderDocument]


class ServiceDocument(msgspec.Struct, frozen=True):
    name: str
    every: float | None
    host: Annotated[str, Meta(description="null if no instance runs it.")] | None
    pid: int | None
    since: datetime | None
    standing_by: list[str]
    iteration: Id | None
    started: datetime | None
    ended: datetime | None
    outcome: str | None
    error: ErrorDetail | None
    failures: int
    due: datetime | None


class ServiceList(msgspec.Struct, frozen=True):
    services: list[ServiceDocument]


class IterationDocument(msgspec.Struct, frozen=True):
    number: Id
    term: Id
    host: str
    pid: int
    started: datetime
    ended: datetime | None
    outcome: Annotated[str, Meta(description="null if it runs, or its end is unknown.")] | None
    error: ErrorDetail | None


class IterationListQuery(msgspec.Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000, description="Maximum number of iterations.")] = 20


class ServiceDetail(ServiceDocument, frozen=True):
    """A service with its latest iterations."""

    iterations: Annotated[list[IterationDocument], Meta(description="Latest iterations first.")]


class AdvisoryLockDocument(msgspec.Struct, frozen=True):
    namespace: Annotated[str, Meta(description="Use of the lock by Rota; null if unknown.")] | None
    class_id: Annotated[int, Meta(description="First key of a lock with two keys.")] | None
    key: Annotated[str, Meta(description="Second key of two, or the only key, as text.")]
    owner: Annotated[str, Meta(description="Leader name or worker of the lock.")] | None
    exclusive: bool
    granted: Annotated[bool, Meta(description="False if the session waits for the lock.")]
    pid: int
    application: str
    user: str | None
    address: str | None
    state: str | None
    state_seconds: float | None
    connected_seconds: float | None


class AdvisoryLockList(msgspec.Struct, frozen=True):
    advisory_locks: list[AdvisoryLockDocument]


@group.operation("GET /locks", Role.VIEWER)
async def list_locks(context: OperationContext, query: LockListQuery) -> LockList:
    """List locks and permits by name: those that are held or have just expired."""
    [found] = await context.read(
        coordination.locks(query.name, include_free=query.include_free, limit=query.limit)
    )
    return LockList([to_document(LockDocument, each) for each in found])


@group.operation(
    "POST /locks/{name:path}/release",
    Role.OPERATOR,
    audit="release lock",
    refuses=(NotFound, Conflict),
)
async def release_lock(
    context: OperationContext, name: Name, body: ReleaseLockRequest
) -> ReleasedLockDocument:
    """Release a lock or permit by force. The holder learns of it at its next renewal."""
    database = (await context.app.open()).database
    token = None if body.token is None else min(int(body.token), MAX_INT64)
    released = await release_by_force(database, name, body.permit, token, context.caller.name)
    title = lock_title(name, body.permit)
    if released is None and body.token is not None:
        raise Conflict(f"{title} is no longer held under token {body.token}; list it again")
    if released is None:
        raise NotFound(f"{title} is not held")
    return to_document(ReleasedLockDocument, released)


@group.operation("GET /advisory-locks", Role.VIEWER)
async def list_advisory_locks(context: OperationContext) -> AdvisoryLockList:
    """List the advisory locks of the database with their sessions, those of other programs included."""
    [found] = await context.read(coordination.advisory_locks())
    return AdvisoryLockList([_advisory_lock_document(each) for each in found])


def _advisory_lock_document(row: coordination.AdvisoryLockRow) -> AdvisoryLockDocument:
    if row.is_pair:
        namespace, class_id, key = NAMESPACE_NAMES.get(row.namespace), row.namespace, row.key
    else:
        namespace, class_id, key = None, None, row.namespace << 32 | row.key
        key = key - 2**64 if key >= 2**63 else key
    return to_document(
        AdvisoryLockDocument, row, namespace=namespace, class_id=class_id, key=str(key)
    )


@group.operation("GET /leaders", Role.VIEWER)
async def list_leaders(context: OperationContext) -> LeaderList:
    """List leaders and their terms."""
    [found] = await context.read(coordination.leaders())
    return LeaderList([to_document(LeaderDocument, each) for each in found])


@group.operation("GET /services", Role.VIEWER)
async def list_services(context: OperationContext) -> ServiceList:
    """List services with the running instance, the standby instances and the last iteration."""
    [found] = await context.read(coordination.services())
    return ServiceList(
        [to_document(ServiceDocument, each, **_error(context, each)) for each in found]
    )


@group.operation("GET /services/{name:path}", Role.VIEWER, refuses=(NotFound,))
async def show_service(
    context: OperationContext, name: Name, query: IterationListQuery
) -> ServiceDetail:
    """Show a service with its latest iterations."""
    found, iterations = await context.read(
        coordination.services(name), coordination.iterations(name, query.limit)
    )
    if not found:
        raise NotFound(f"there is no service {name!r}; list the services with `rota services`")
    return to_document(
        ServiceDetail,
        found[0],
        **_error(context, found[0]),
        iterations=[
            to_document(IterationDocument, each, **_error(context, each)) for each in iterations
        ],
    )


def _error(
    context: OperationContext, row: coordination.ServiceRow | coordination.IterationRow
) -> dict[str, ErrorDetail | None]:
    return {"error": error_detail(row.error, visible=context.may_see_payloads)}


# Once calls, rate limits


class OnceCallDocument(msgspec.Struct, frozen=True):
    key: str
    token: Id
    host: Annotated[str, Meta(description="Host that makes or made the call.")]
    pid: int
    label: str
    state: Annotated[str, Meta(description="running, finished or lost.")]
    started: datetime
    expires: datetime
    finished: datetime | None
    retained_until: (
        Annotated[datetime, Meta(description="Time until which the result is kept; null: forever.")]
        | None
    )
    result: StoredJson = UNSET


class OnceCallListQuery(msgspec.Struct, forbid_unknown_fields=True):
    prefix: Annotated[str, Meta(max_length=200, description="Prefix of the key.")] = ""
    limit: Limit = 50
    cursor: Cursor | None = None


class OnceCallList(msgspec.Struct, frozen=True):
    once_calls: list[OnceCallDocument]
    next: Next | None


class RateLimitDocument(msgspec.Struct, frozen=True):
    name: str
    interval: Annotated[float, Meta(description="Seconds between two permits.")]
    used: Annotated[float, Meta(description="Permits used and not refilled yet.")]
    refilled_at: Annotated[datetime, Meta(description="Time at which all permits are refilled.")]
    last_used: datetime


class RateLimitListQuery(msgspec.Struct, forbid_unknown_fields=True):
    limit: Limit = 50
    cursor: Cursor | None = None


class RateLimitList(msgspec.Struct, frozen=True):
    rate_limits: list[RateLimitDocument]
    next: Next | None


@group.operation("GET /once-calls", Role.VIEWER)
async def list_once_calls(context: OperationContext, query: OnceCallListQuery) -> OnceCallList:
    """List `once` calls by key."""
    after = decode_cursor(query.cursor) or ""
    [found] = await context.read(coordination.once_calls(query.prefix, after, query.limit + 1))
    page = [
        to_document(
            OnceCallDocument,
            each,
            result=stored_json(each.result, visible=context.may_see_payloads),
        )
        for each in found[: query.limit]
    ]
    return OnceCallList(page, encode_cursor(page[-1].key) if len(found) > query.limit else None)


@group.operation("GET /rate-limits", Role.VIEWER)
async def list_rate_limits(context: OperationContext, query: RateLimitListQuery) -> RateLimitList:
    """List rate limits by name, with their current use."""
    [found] = await context.read(
        coordination.rate_limits(decode_cursor(query.cursor) or "", query.limit + 1)
    )
    page = [to_document(RateLimitDocument, each) for each in found[: query.limit]]
    return RateLimitList(page, encode_cursor(page[-1].name) if len(found) > query.limit else None)

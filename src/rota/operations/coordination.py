"""Operations of coordination: locks and semaphores, leaders, services, once calls, rate limits."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model.access import Role
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    MAX_INT64,
    Cursor,
    IdText,
    Limit,
    Name,
    Next,
    decode_cursor,
    encode_cursor,
    extend,
)
from rota.operations.lock_release import lock_title, release_by_force
from rota.operations.refusals import Conflict, NotFound
from rota.store.advisory_locks import NAMESPACE_NAMES
from rota.store.audit import ReleasedLock
from rota.store.read import coordination

group = OperationGroup("coordination")


# Locks, leaders, services


class LockListQuery(msgspec.Struct, forbid_unknown_fields=True):
    name: Name | None = None
    include_free: Annotated[bool, Meta(description="Also list free locks.")] = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 200


class LockList(msgspec.Struct, frozen=True):
    locks: list[coordination.LockRow]


class ReleaseLockRequest(msgspec.Struct, forbid_unknown_fields=True):
    permit: Annotated[int, Meta(ge=0, le=2**31 - 1, description="Permit of a semaphore.")] = 0
    token: (
        Annotated[IdText, Meta(description="Release only if it is held under this token.")] | None
    ) = None


class LeaderList(msgspec.Struct, frozen=True):
    leaders: list[coordination.LeaderRow]


class ServiceList(msgspec.Struct, frozen=True):
    services: list[coordination.ServiceRow]


class IterationListQuery(msgspec.Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000, description="Maximum number of iterations.")] = 20


class ServiceDetail(coordination.ServiceRow, frozen=True):
    """A service with its latest iterations."""

    iterations: Annotated[
        list[coordination.IterationRow], Meta(description="Latest iterations first.")
    ]


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
    return LockList(found)


@group.operation(
    "POST /locks/{name:path}/release",
    Role.OPERATOR,
    audit="release lock",
    refuses=(NotFound, Conflict),
)
async def release_lock(
    context: OperationContext, name: Name, body: ReleaseLockRequest
) -> ReleasedLock:
    """Release a lock or permit by force. The holder learns of it at its next renewal."""
    database = (await context.app.open()).database
    token = None if body.token is None else min(int(body.token), MAX_INT64)
    released = await release_by_force(database, name, body.permit, token, context.caller.name)
    title = lock_title(name, body.permit)
    if released is None and body.token is not None:
        raise Conflict(f"{title} is no longer held under token {body.token}; list it again")
    if released is None:
        raise NotFound(f"{title} is not held")
    return released


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
    return extend(AdvisoryLockDocument, row, namespace=namespace, class_id=class_id, key=str(key))


@group.operation("GET /leaders", Role.VIEWER)
async def list_leaders(context: OperationContext) -> LeaderList:
    """List leaders and their terms."""
    [found] = await context.read(coordination.leaders())
    return LeaderList(found)


@group.operation("GET /services", Role.VIEWER)
async def list_services(context: OperationContext) -> ServiceList:
    """List services with the running instance, the standby instances and the last iteration."""
    [found] = await context.read(coordination.services())
    return ServiceList(found)


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
    return extend(ServiceDetail, found[0], iterations=iterations)


# Once calls, rate limits


class OnceCallListQuery(msgspec.Struct, forbid_unknown_fields=True):
    prefix: Annotated[str, Meta(max_length=200, description="Prefix of the key.")] = ""
    limit: Limit = 50
    cursor: Cursor | None = None


class OnceCallList(msgspec.Struct, frozen=True):
    once_calls: list[coordination.OnceCallRow]
    next: Next | None


class RateLimitListQuery(msgspec.Struct, forbid_unknown_fields=True):
    limit: Limit = 50
    cursor: Cursor | None = None


class RateLimitList(msgspec.Struct, frozen=True):
    rate_limits: list[coordination.RateLimitRow]
    next: Next | None


@group.operation("GET /once-calls", Role.VIEWER)
async def list_once_calls(context: OperationContext, query: OnceCallListQuery) -> OnceCallList:
    """List `once` calls by key."""
    after = decode_cursor(query.cursor) or ""
    [found] = await context.read(coordination.once_calls(query.prefix, after, query.limit + 1))
    page = found[: query.limit]
    return OnceCallList(page, encode_cursor(page[-1].key) if len(found) > query.limit else None)


@group.operation("GET /rate-limits", Role.VIEWER)
async def list_rate_limits(context: OperationContext, query: RateLimitListQuery) -> RateLimitList:
    """List rate limits by name, with their current use."""
    [found] = await context.read(
        coordination.rate_limits(decode_cursor(query.cursor) or "", query.limit + 1)
    )
    page = found[: query.limit]
    return RateLimitList(page, encode_cursor(page[-1].name) if len(found) > query.limit else None)

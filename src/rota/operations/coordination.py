"""Operations of coordination: locks and semaphores, leaders, services, once calls, rate limits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from rota.errors import Busy
from rota.model.access import Role
from rota.model.text import in_one_unit
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    MAX_INT64,
    Cursor,
    IdText,
    Limit,
    Name,
    Next,
    cut_page,
    decode_cursor,
    extend,
)
from rota.operations.refusals import Conflict, NotFound
from rota.store import audit, pg_errors
from rota.store.advisory_locks import NAMESPACE_NAMES
from rota.store.audit import Blocker, ReleasedLock
from rota.store.database import Database, run
from rota.store.read import coordination

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

group = OperationGroup("coordination")

BLOCKER_POLL_SECONDS = 0.1


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
    released = await _release_by_force(database, name, body.permit, token, context.caller.name)
    title = _lock_title(name, body.permit)
    if released is None and body.token is not None:
        raise Conflict(f"{title} is no longer held under token {body.token}; list it again")
    if released is None:
        raise NotFound(f"{title} is not held")
    return released


def _lock_title(name: str, permit: int) -> str:
    return f"permit {permit} of {name!r}" if permit else f"lock {name!r}"


async def _release_by_force(
    database: Database, name: str, permit: int, token: int | None, by: str
) -> ReleasedLock | None:
    """Release a lock and write the audit row. Return its former holder, or None if it was not held.

    Raise Busy, with the sessions that block the release, if a transaction asserts the lock.
    """
    connection = await database.connect()
    blockers: list[Blocker] = []
    try:
        # One transaction, so that a pooler runs both statements in the same server process.
        with pg_errors.translated(database.schema, own_connection=True):
            async with connection.transaction():
                [pid] = await run(connection, audit.backend_pid(), database.schema)
                polling = asyncio.create_task(_poll_blockers(database, pid, blockers))
                try:
                    query = audit.release_lock(name, permit, by, token)
                    released = await run(connection, query, database.schema)
                finally:
                    polling.cancel()
                    await asyncio.gather(polling, return_exceptions=True)
    except Exception as error:
        if not pg_errors.is_contended(error):
            raise
        raise Busy(_blocked(_lock_title(name, permit), blockers)) from error
    finally:
        await connection.close()
    return released[0] if released else None


async def _poll_blockers(database: Database, pid: int, found: list[Blocker]) -> None:
    connection: PgConnection = await database.connect()
    try:
        while True:
            await asyncio.sleep(BLOCKER_POLL_SECONDS)
            if blockers := await run(connection, audit.blockers(pid), database.schema):
                found[:] = blockers
    finally:
        await connection.close()


def _blocked(title: str, blockers: Sequence[Blocker]) -> str:
    if not blockers:
        return f"{title} was busy for two seconds and was not released; try again"
    sessions = "; ".join(_describe_session(each) for each in blockers)
    commands = " and ".join(f"`select pg_terminate_backend({each.pid})`" for each in blockers)
    return (
        f"{title} was not released: an open transaction asserts it: {sessions}. "
        f"End the transaction in its program, or roll it back with {commands}; then try again"
    )


def _describe_session(blocker: Blocker) -> str:
    words = [f"server process {blocker.pid}"]
    origin = [
        blocker.application,
        blocker.user and f"user {blocker.user}",
        blocker.address and f"from {blocker.address}",
    ]
    if any(origin):
        words.append(f"({', '.join(each for each in origin if each)})")
    if blocker.open is not None:
        words.append(f"has been in the transaction for {in_one_unit(blocker.open)}")
    if blocker.state is not None:
        words.append(f"and is {blocker.state}")
    return " ".join(words)


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
    return OnceCallList(*cut_page(found, query.limit, "key"))


@group.operation("GET /rate-limits", Role.VIEWER)
async def list_rate_limits(context: OperationContext, query: RateLimitListQuery) -> RateLimitList:
    """List rate limits by name, with their current use."""
    [found] = await context.read(
        coordination.rate_limits(decode_cursor(query.cursor) or "", query.limit + 1)
    )
    return RateLimitList(*cut_page(found, query.limit, "name"))

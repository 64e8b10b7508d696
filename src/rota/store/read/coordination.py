"""Read-only queries about locks, leaders, services, alerts, `once` calls and rate limits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from rota.model.document import Id, Payload, StoredError
from rota.store import advisory_locks as store_advisory_locks
from rota.store.query import MAX_CHARACTER, Params, Query, statement
from rota.store.services import leader_of

MAX_ID = 2**63 - 1


class LockRow(msgspec.Struct, frozen=True):
    name: str
    permit: Annotated[int, Meta(description="Permit of a semaphore; 0 for a lock.")]
    token: Id
    instance: UUID | None
    """None if the lock is free; the other fields then describe the last holder."""
    host: str | None
    pid: int | None
    label: str | None
    acquired: datetime | None
    expires: datetime | None
    renewals: int
    max_held: Annotated[float, Meta(description="Seconds after which an alert is raised.")] | None
    awaited_since: Annotated[datetime, Meta(description="Time since which a client waits.")] | None
    held: bool


class AdvisoryLockRow(msgspec.Struct, frozen=True):
    is_pair: bool
    """True for the two-integer form. Else `namespace` and `key` are the halves of one bigint."""
    namespace: int
    key: int
    owner: str | None
    exclusive: bool
    granted: bool
    pid: int
    application: str
    user: str | None
    address: str | None
    state: str | None
    state_seconds: float | None
    connected_seconds: float | None


class LeaderRow(msgspec.Struct, frozen=True):
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


class ServiceRow(msgspec.Struct, frozen=True):
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
    error: StoredError
    failures: int
    due: datetime | None


class IterationRow(msgspec.Struct, frozen=True):
    number: Id
    term: Id
    host: str
    pid: int
    started: datetime
    ended: datetime | None
    outcome: Annotated[str, Meta(description="null if it runs, or its end is unknown.")] | None
    error: StoredError


class AlertRow(msgspec.Struct, frozen=True):
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


class OnceCallRow(msgspec.Struct, frozen=True):
    key: str
    token: Id
    host: Annotated[str, Meta(description="Host that makes or made the call.")]
    pid: int
    label: str
    started: datetime
    state: Annotated[str, Meta(description="running, finished or lost.")]
    """A call is lost if its holder did not record a result in time."""
    expires: datetime
    finished: datetime | None
    retained_until: (
        Annotated[datetime, Meta(description="Time until which the result is kept; null: forever.")]
        | None
    )
    result: Payload


class RateLimitRow(msgspec.Struct, frozen=True):
    name: str
    interval: Annotated[float, Meta(description="Seconds between two permits.")]
    used: Annotated[float, Meta(description="Permits used and not refilled yet.")]
    """Permits that are reserved ahead count as used."""
    refilled_at: Annotated[datetime, Meta(description="Time at which all permits are refilled.")]
    last_used: datetime


@statement("view/locks", LockRow)
def locks(
    name: str | None = None,
    *,
    include_free: bool = False,
    prefix: str = "",
    after: tuple[str, int] = ("", -1),
    limit: int = 200,
) -> Params:
    """Return the locks that are held or expired recently; with `include_free` also the free ones.

    `after` is the name and permit of the last row of the previous page.
    """
    after_name, after_permit = after
    prefix_end = prefix + MAX_CHARACTER
    return {"prefix_end": prefix_end, "after_name": after_name, "after_permit": after_permit}


def advisory_locks() -> Query[AdvisoryLockRow]:
    params = {"leader": store_advisory_locks.LEADER, "worker": store_advisory_locks.WORKER}
    return Query("view/advisory_locks", params, AdvisoryLockRow)


def leaders() -> Query[LeaderRow]:
    return Query("view/leaders", {"namespace": store_advisory_locks.LEADER}, LeaderRow)


@statement("view/services", ServiceRow)
def services(name: str | None = None) -> Params:
    return {"leader_prefix": leader_of(""), "namespace": store_advisory_locks.LEADER}


@statement("view/iterations", IterationRow)
def iterations(service: str, limit: int = 20) -> None: ...


@statement("view/alerts", AlertRow)
def alerts(*, include_closed: bool = False, limit: int = 20) -> None:
    """Return the open alerts; with `include_closed` also the closed ones."""


@statement("view/closed_alerts", AlertRow)
def closed_alerts(before: int = MAX_ID, limit: int = 20) -> None:
    """Return the closed alerts, newest first."""


@statement("view/once_calls", OnceCallRow)
def once_calls(prefix: str = "", after: str = "", limit: int = 50) -> Params:
    """Return `once` calls by key, with a prefix, after a key."""
    return {"prefix_end": prefix + MAX_CHARACTER}


@statement("rate_limit/list", RateLimitRow)
def rate_limits(after: str = "", limit: int = 200) -> None: ...

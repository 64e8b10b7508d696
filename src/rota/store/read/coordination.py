"""Read-only queries about locks, leaders, services, alerts, `once` calls and rate limits."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from rota.store import advisory_locks as store_advisory_locks
from rota.store.query import MAX_CHARACTER, Query
from rota.store.services import leader_of

MAX_ID = 2**63 - 1


class LockRow(msgspec.Struct, frozen=True):
    name: str
    permit: int
    """Number of the permit; 0 for a lock."""
    token: int
    instance: UUID | None
    """None if the lock is free; the other fields then describe the last holder."""
    host: str | None
    pid: int | None
    label: str | None
    acquired: datetime | None
    expires: datetime | None
    renewals: int
    max_held: float | None
    awaited_since: datetime | None
    """Time since which a client waits."""
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
    term: int
    instance: UUID | None
    host: str | None
    pid: int | None
    label: str | None
    since: datetime | None
    expires: datetime | None
    """None if it is held by a session lock."""
    alive: bool
    elections: int
    """Elections in the last hour."""
    or_more: bool


class ServiceRow(msgspec.Struct, frozen=True):
    name: str
    every: float | None
    host: str | None
    """None if no instance runs the service."""
    pid: int | None
    since: datetime | None
    standing_by: list[str]
    iteration: int | None
    started: datetime | None
    ended: datetime | None
    outcome: str | None
    error: bytes | None
    failures: int
    due: datetime | None


class IterationRow(msgspec.Struct, frozen=True):
    number: int
    term: int
    host: str
    pid: int
    started: datetime
    ended: datetime | None
    outcome: str | None
    error: bytes | None


class AlertRow(msgspec.Struct, frozen=True):
    id: int
    kind: str
    subject: str
    message: str
    raised: datetime
    cleared: datetime | None
    host: str
    pid: int
    acknowledged_until: datetime | None
    """End of the acknowledgement."""
    acknowledged_by: str | None
    closed_by: str | None
    """Operator that closed it; None if it is open or its condition ended."""


class OnceCallRow(msgspec.Struct, frozen=True):
    key: str
    token: int
    host: str
    pid: int
    label: str
    started: datetime
    state: str
    """`running`, `finished`, or `lost`: the holder did not record a result in time."""
    expires: datetime
    finished: datetime | None
    retained_until: datetime | None
    """Time until which the result is kept; None for ever."""
    result: bytes | None


class RateLimitRow(msgspec.Struct, frozen=True):
    name: str
    interval: float
    """Seconds between two units."""
    used: float
    """Units of the burst in use, or reserved ahead, that are not refilled yet."""
    refilled_at: datetime
    """Time at which all units are refilled."""
    last_used: datetime


def locks(
    name: str | None = None,
    *,
    include_free: bool = False,
    prefix: str = "",
    after: tuple[str, int] = ("", -1),
    limit: int = 200,
) -> Query[LockRow]:
    """Return the locks that are held or expired recently; with `include_free` also the free ones.

    `after` is the name and permit of the last row of the previous page.
    """
    params = {
        "name": name,
        "include_free": include_free,
        "prefix": prefix,
        "prefix_end": prefix + MAX_CHARACTER,
        "after_name": after[0],
        "after_permit": after[1],
        "limit": limit,
    }
    return Query("view/locks", params, LockRow)


def advisory_locks() -> Query[AdvisoryLockRow]:
    params = {"leader": store_advisory_locks.LEADER, "worker": store_advisory_locks.WORKER}
    return Query("view/advisory_locks", params, AdvisoryLockRow)


def leaders() -> Query[LeaderRow]:
    return Query("view/leaders", {"namespace": store_advisory_locks.LEADER}, LeaderRow)


def services(name: str | None = None) -> Query[ServiceRow]:
    params = {
        "name": name,
        "leader_prefix": leader_of(""),
        "namespace": store_advisory_locks.LEADER,
    }
    return Query("view/services", params, ServiceRow)


def iterations(service: str, limit: int = 20) -> Query[IterationRow]:
    return Query("view/iterations", {"service": service, "limit": limit}, IterationRow)


def alerts(*, include_closed: bool = False, limit: int = 20) -> Query[AlertRow]:
    """Return the open alerts; with `include_closed` also the closed ones."""
    return Query("view/alerts", {"include_closed": include_closed, "limit": limit}, AlertRow)


def closed_alerts(before: int = MAX_ID, limit: int = 20) -> Query[AlertRow]:
    """Return the closed alerts, newest first."""
    return Query("view/closed_alerts", {"before": before, "limit": limit}, AlertRow)


def once_calls(prefix: str = "", after: str = "", limit: int = 50) -> Query[OnceCallRow]:
    """Return `once` calls by key, with a prefix, after a key."""
    params = {
        "prefix": prefix,
        "prefix_end": prefix + MAX_CHARACTER,
        "after": after,
        "limit": limit,
    }
    return Query("view/once_calls", params, OnceCallRow)


def rate_limits(after: str = "", limit: int = 200) -> Query[RateLimitRow]:
    return Query("rate_limit/list", {"after": after, "limit": limit}, RateLimitRow)

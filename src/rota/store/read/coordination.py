"""Who holds, leads and runs what at the moment: read-only questions that the command line and pages ask."""

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
    """0: it is a lock."""
    token: int
    instance: UUID | None
    """None: nobody has it; the rest tells of the last one."""
    host: str | None
    pid: int | None
    label: str | None
    acquired: datetime | None
    expires: datetime | None
    renewals: int
    max_held: float | None
    awaited_since: datetime | None
    """Since when somebody waits."""
    held: bool


class AdvisoryLockRow(msgspec.Struct, frozen=True):
    is_pair: bool
    """Of two integers, a namespace and a key; else `space` and `key` are the halves of one."""
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
    """Seconds in that state."""
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
    """None: it is held by a session."""
    alive: bool
    elections: int
    """Within an hour."""
    or_more: bool


class ServiceRow(msgspec.Struct, frozen=True):
    name: str
    every: float | None
    host: str | None
    """None: nobody runs it."""
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
    """Until then somebody sees to it."""
    acknowledged_by: str | None
    closed_by: str | None
    """None: it was over by itself, or is not."""


class OnceCallRow(msgspec.Struct, frozen=True):
    key: str
    token: int
    host: str
    pid: int
    label: str
    started: datetime
    state: str
    """running; finished; or lost: who made it did not say in time what came of it."""
    expires: datetime
    finished: datetime | None
    retained_until: datetime | None
    """So long its result is kept; None: for good."""
    result: bytes | None


class RateLimitRow(msgspec.Struct, frozen=True):
    name: str
    interval: float
    """Seconds from one to the next."""
    used: float
    """So many of its burst, or ahead of their time, are not made up for yet."""
    refilled_at: datetime
    """By then all are."""
    last_used: datetime


def locks(
    name: str | None = None,
    *,
    include_free: bool = False,
    prefix: str = "",
    after: tuple[str, int] = ("", -1),
    limit: int = 200,
) -> Query[LockRow]:
    """Those that are held, or have just run out; `free`: also those that nobody holds. `after`: a name and
    a permit."""
    params = {
        "name": name,
        "free": include_free,
        "first": prefix,
        "beyond": prefix + MAX_CHARACTER,
        "after": after[0],
        "permit": after[1],
        "limit": limit,
    }
    return Query("view/locks", params, LockRow)


def advisory_locks() -> Query[AdvisoryLockRow]:
    params = {"leader": store_advisory_locks.LEADER, "worker": store_advisory_locks.WORKER}
    return Query("view/advisory", params, AdvisoryLockRow)


def leaders() -> Query[LeaderRow]:
    return Query("view/leaders", {"space": store_advisory_locks.LEADER}, LeaderRow)


def services(name: str | None = None) -> Query[ServiceRow]:
    params = {"name": name, "prefix": leader_of(""), "space": store_advisory_locks.LEADER}
    return Query("view/services", params, ServiceRow)


def iterations(service: str, limit: int = 20) -> Query[IterationRow]:
    return Query("view/iterations", {"service": service, "limit": limit}, IterationRow)


def alerts(*, include_closed: bool = False, limit: int = 20) -> Query[AlertRow]:
    """Those that are open; `over`: also those that no longer are."""
    return Query("view/alerts", {"over": include_closed, "limit": limit}, AlertRow)


def closed_alerts(before: int = MAX_ID, limit: int = 20) -> Query[AlertRow]:
    """Those that are over, the last first."""
    return Query("view/past_alerts", {"before": before, "limit": limit}, AlertRow)


def once_calls(prefix: str = "", after: str = "", limit: int = 50) -> Query[OnceCallRow]:
    """By their keys: those that begin so, after one."""
    params = {"first": prefix, "beyond": prefix + MAX_CHARACTER, "after": after, "limit": limit}
    return Query("view/onces", params, OnceCallRow)


def rate_limits(after: str = "", limit: int = 200) -> Query[RateLimitRow]:
    return Query("rate/listed", {"after": after, "limit": limit}, RateLimitRow)

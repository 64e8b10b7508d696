"""Who holds, leads and runs what at the moment: read-only questions that the command line and pages ask."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from rota.store import advisory
from rota.store.query import Query
from rota.store.services import leader_of


class LockLine(msgspec.Struct, frozen=True):
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
    longest: float | None
    wanted: datetime | None
    """Since when somebody waits."""
    held: bool


class AdvisoryLine(msgspec.Struct, frozen=True):
    pair: bool
    """Of two integers, a namespace and a key; else `space` and `key` are the halves of one."""
    space: int
    key: int
    whose: str | None
    exclusive: bool
    granted: bool
    pid: int
    application: str
    user: str | None
    address: str | None
    state: str | None
    since: float | None
    """Seconds in that state."""
    connected: float | None


class LeaderLine(msgspec.Struct, frozen=True):
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


class ServiceLine(msgspec.Struct, frozen=True):
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


class IterationLine(msgspec.Struct, frozen=True):
    number: int
    term: int
    host: str
    pid: int
    started: datetime
    ended: datetime | None
    outcome: str | None
    error: bytes | None


class AlertLine(msgspec.Struct, frozen=True):
    id: int
    kind: str
    subject: str
    message: str
    raised: datetime
    cleared: datetime | None
    host: str
    pid: int
    acknowledged: datetime | None
    """Until then somebody sees to it."""
    who: str | None
    closed_by: str | None
    """None: it was over by itself, or is not."""


def locks(name: str | None = None, *, free: bool = False, limit: int = 200) -> Query[LockLine]:
    """Those that are held, or have just run out; `free`: also those that nobody holds."""
    return Query("view/locks", {"name": name, "free": free, "limit": limit}, LockLine)


def advisory_locks() -> Query[AdvisoryLine]:
    params = {"leader": advisory.LEADER, "worker": advisory.WORKER}
    return Query("view/advisory", params, AdvisoryLine)


def leaders() -> Query[LeaderLine]:
    return Query("view/leaders", {"space": advisory.LEADER}, LeaderLine)


def services(name: str | None = None) -> Query[ServiceLine]:
    params = {"name": name, "prefix": leader_of(""), "space": advisory.LEADER}
    return Query("view/services", params, ServiceLine)


def iterations(service: str, limit: int = 20) -> Query[IterationLine]:
    return Query("view/iterations", {"service": service, "limit": limit}, IterationLine)


def alerts(*, over: bool = False, limit: int = 20) -> Query[AlertLine]:
    """Those that are open; `over`: also those that no longer are."""
    return Query("view/alerts", {"over": over, "limit": limit}, AlertLine)

"""Who holds, leads and runs what at the moment: read-only questions that the command line and pages ask."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from rota.store import advisory
from rota.store.query import LAST, Query
from rota.store.services import leader_of

NEWEST = 2**63 - 1


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


class OnceLine(msgspec.Struct, frozen=True):
    key: str
    token: int
    host: str
    pid: int
    label: str
    began: datetime
    state: str
    """running; finished; or lost: who made it did not say in time what came of it."""
    expires: datetime
    finished: datetime | None
    until: datetime | None
    """So long its result is kept; None: for good."""
    result: bytes | None


class RateLine(msgspec.Struct, frozen=True):
    name: str
    apart: float
    """Seconds from one to the next."""
    used: float
    """So many of its burst, or ahead of their time, are not made up for yet."""
    due: datetime
    """By then all are."""
    seen: datetime


def locks(
    name: str | None = None,
    *,
    free: bool = False,
    begins: str = "",
    after: tuple[str, int] = ("", -1),
    limit: int = 200,
) -> Query[LockLine]:
    """Those that are held, or have just run out; `free`: also those that nobody holds. `after`: a name and
    a permit."""
    params = {
        "name": name,
        "free": free,
        "first": begins,
        "beyond": begins + LAST,
        "after": after[0],
        "permit": after[1],
        "limit": limit,
    }
    return Query("view/locks", params, LockLine)


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


def past_alerts(before: int = NEWEST, limit: int = 20) -> Query[AlertLine]:
    """Those that are over, the last first."""
    return Query("view/past_alerts", {"before": before, "limit": limit}, AlertLine)


def onces(begins: str = "", after: str = "", limit: int = 50) -> Query[OnceLine]:
    """By their keys: those that begin so, after one."""
    params = {"first": begins, "beyond": begins + LAST, "after": after, "limit": limit}
    return Query("view/onces", params, OnceLine)


def rates(after: str = "", limit: int = 200) -> Query[RateLine]:
    return Query("rate/listed", {"after": after, "limit": limit}, RateLine)

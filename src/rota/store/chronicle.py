"""Read-only questions about when what happened to a run, for a timeline and a table of it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.query import Query

TOLD = 100
"""Jobs of a run up to which each of their steps is told."""


class Happening(msgspec.Struct, frozen=True):
    at: datetime
    what: str
    """created, began, claimed, asleep, quarantined, unwanted (it was asked to stop), signal, a kind of step
    (step, sleep, wait, value, version), or what an attempt came to."""
    job: int | None
    attempt: int | None
    worker: int | None
    took: float | None
    name: str | None
    """Of a step, of a signal; of what is asleep, the signals it waits for."""
    until: datetime | None
    error: bytes | None


class Doing(msgspec.Struct, frozen=True):
    job: int
    kind: str
    """step, sleep or wait."""
    name: str
    at: datetime
    """When a step was over, a sleep began; when a wait began, and once it is over, when it was."""
    took: float | None
    until: datetime | None
    open: bool


def chronicle(run: int, limit: int = 200, told: int = TOLD) -> Query[Happening]:
    """Of a run and its jobs, or of a job: the last so many, the last first. What people did by hand is in
    the audit log."""
    return Query("view/chronicle", {"run": run, "limit": limit, "told": told}, Happening)


def doings(run: int, limit: int = 2_000) -> Query[Doing]:
    return Query("view/doings", {"run": run, "limit": limit}, Doing)


def trace(run: int) -> Query[str]:
    """A W3C traceparent; no row: nobody traced it."""
    return Query("view/trace", {"run": run}, str)

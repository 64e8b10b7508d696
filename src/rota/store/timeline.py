"""Read-only questions about what a job's own code has come to, waits for, and says."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.query import Query

ALL = 2**31 - 1

COUNTED = 10_000
"""Lines of a log up to which they are counted."""


class StepLine(msgspec.Struct, frozen=True):
    kind: str
    name: str
    number: int
    position: int
    own: bool
    open: bool
    """It has come to nothing yet."""
    tries: int
    at: datetime
    took: float | None
    until: datetime | None
    brief: str | None
    """How its result begins."""
    result: bytes | None
    """All of it, where asked for."""
    error: bytes | None
    of: int
    """How many there are."""


class WaitLine(msgspec.Struct, frozen=True):
    job: int
    kind: str
    name: str
    number: int
    tries: int
    until: datetime | None


class SignalLine(msgspec.Struct, frozen=True):
    name: str
    at: datetime | None
    """None: nobody has sent it."""
    brief: str | None
    payload: bytes | None
    jobs: list[int]
    """Who has waited for it."""


class ProgressLine(msgspec.Struct, frozen=True):
    at: datetime
    done: float
    total: float | None
    note: str | None


class LogLine(msgspec.Struct, frozen=True):
    at: datetime
    attempt: int
    message: str
    of: int
    """How many lines there are; COUNTED: at least so many."""


def steps(job: int, limit: int = ALL, *, whole: bool = False) -> Query[StepLine]:
    """The last so many steps of a job, the last first; `whole`: with what they returned."""
    return Query("view/steps", {"job": job, "limit": limit, "whole": whole}, StepLine)


def waits(run: int) -> Query[WaitLine]:
    """What a job, or the jobs of a run, wait for."""
    return Query("view/waits", {"run": run}, WaitLine)


def signals(run: int, limit: int | None = None, *, whole: bool = False) -> Query[SignalLine]:
    """What was said to a run, and what somebody has waited for; `whole`: all of each."""
    return Query("view/signals", {"run": run, "whole": whole, "limit": limit}, SignalLine)


def progress(job: int) -> Query[ProgressLine]:
    return Query("view/progress", {"job": job}, ProgressLine)


def logs(job: int, limit: int = ALL) -> Query[LogLine]:
    """The last so many lines, the last first."""
    params = {"job": job, "limit": limit, "counted": max(COUNTED, min(limit, ALL))}
    return Query("view/logs", params, LogLine)

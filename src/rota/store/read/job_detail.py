"""Read-only questions about what a job's own code has come to, waits for, and says."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.query import Query

NO_LIMIT = 2**31 - 1

MAX_COUNTED_LINES = 10_000
"""Lines of a log up to which they are counted."""


class StepRow(msgspec.Struct, frozen=True):
    kind: str
    name: str
    number: int
    position: int
    in_main_branch: bool
    open: bool
    """It has come to nothing yet."""
    tries: int
    at: datetime
    seconds: float | None
    until: datetime | None
    result_preview: str | None
    """How its result begins."""
    result: bytes | None
    """All of it, where asked for."""
    error: bytes | None
    total: int
    """How many there are."""


class WaitRow(msgspec.Struct, frozen=True):
    job: int
    kind: str
    name: str
    number: int
    tries: int
    until: datetime | None


class SignalRow(msgspec.Struct, frozen=True):
    name: str
    at: datetime | None
    """None: nobody has sent it."""
    payload_preview: str | None
    payload: bytes | None
    waiting_jobs: list[int]
    """Who has waited for it."""


class JobProgressRow(msgspec.Struct, frozen=True):
    at: datetime
    done: float
    total: float | None
    note: str | None


class LogRow(msgspec.Struct, frozen=True):
    at: datetime
    attempt: int
    message: str
    total: int
    """How many lines there are; COUNTED: at least so many."""


def steps(job: int, limit: int = NO_LIMIT, *, with_values: bool = False) -> Query[StepRow]:
    """The last so many steps of a job, the last first; `whole`: with what they returned."""
    return Query("view/steps", {"job": job, "limit": limit, "whole": with_values}, StepRow)


def open_waits(run: int) -> Query[WaitRow]:
    """What a job, or the jobs of a run, wait for."""
    return Query("view/waits", {"run": run}, WaitRow)


def signals(run: int, limit: int | None = None, *, with_values: bool = False) -> Query[SignalRow]:
    """What was said to a run, and what somebody has waited for; `whole`: all of each."""
    return Query("view/signals", {"run": run, "whole": with_values, "limit": limit}, SignalRow)


def progress(job: int) -> Query[JobProgressRow]:
    return Query("view/progress", {"job": job}, JobProgressRow)


def logs(job: int, limit: int = NO_LIMIT) -> Query[LogRow]:
    """The last so many lines, the last first."""
    params = {"job": job, "limit": limit, "counted": max(MAX_COUNTED_LINES, min(limit, NO_LIMIT))}
    return Query("view/logs", params, LogRow)

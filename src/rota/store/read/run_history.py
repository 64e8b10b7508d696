"""Read-only questions about when what happened to a run, for a timeline and a table of it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.query import Query

MAX_JOBS_WITH_STEPS = 100
"""Jobs of a run up to which each of their steps is told."""


class RunEventRow(msgspec.Struct, frozen=True):
    at: datetime
    kind: str
    """created, began, claimed, asleep, quarantined, unwanted (it was asked to stop), signal, a kind of step
    (step, sleep, wait, value, version), or what an attempt came to."""
    job: int | None
    attempt: int | None
    worker: int | None
    seconds: float | None
    name: str | None
    """Of a step, of a signal; of what is asleep, the signals it waits for."""
    until: datetime | None
    error: bytes | None


class RunStepRow(msgspec.Struct, frozen=True):
    job: int
    kind: str
    """step, sleep or wait."""
    name: str
    at: datetime
    """When a step was over, a sleep began; when a wait began, and once it is over, when it was."""
    seconds: float | None
    until: datetime | None
    open: bool


def run_events(
    run: int, limit: int = 200, max_jobs_with_steps: int = MAX_JOBS_WITH_STEPS
) -> Query[RunEventRow]:
    """Of a run and its jobs, or of a job: the last so many, the last first. What people did by hand is in
    the audit log."""
    return Query(
        "view/chronicle", {"run": run, "limit": limit, "told": max_jobs_with_steps}, RunEventRow
    )


def run_steps(run: int, limit: int = 2_000) -> Query[RunStepRow]:
    return Query("view/doings", {"run": run, "limit": limit}, RunStepRow)


def traceparent(run: int) -> Query[str]:
    """A W3C traceparent; no row: nobody traced it."""
    return Query("view/trace", {"run": run}, str)

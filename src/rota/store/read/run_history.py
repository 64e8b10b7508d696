"""Read-only queries about the events of a run, for its timeline and table."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.query import statement

MAX_JOBS_WITH_STEPS = 100
"""Number of jobs of a run up to which the events of their steps are included."""


class RunEventRow(msgspec.Struct, frozen=True):
    at: datetime
    kind: str
    """Kind of event.

    `created`, `began`, `claimed`, `sleeping`, `quarantined`, `cancel_requested`, `signal`, a
    kind of entry (`step`, `sleep`, `wait`, `value`, `version`), or the outcome of an attempt.
    """
    job: int | None
    attempt: int | None
    worker: int | None
    seconds: float | None
    name: str | None
    """Name of the step or signal; for a sleeping job, the signals it waits for."""
    until: datetime | None
    error: bytes | None


class RunStepRow(msgspec.Struct, frozen=True):
    job: int
    kind: str
    """`step`, `sleep` or `wait`."""
    name: str
    at: datetime
    """End of a step, begin of a sleep; of a wait its begin while it is open, then its end."""
    seconds: float | None
    until: datetime | None
    open: bool


@statement("view/run_events", RunEventRow)
def run_events(run: int, limit: int = 200, max_jobs_with_steps: int = MAX_JOBS_WITH_STEPS) -> None:
    """Return the last events of a run and its jobs, or of a job, newest first.

    Operators' actions are in the audit log.
    """


@statement("view/run_steps", RunStepRow)
def run_steps(run: int, limit: int = 2_000) -> None: ...


@statement("view/traceparent", str)
def traceparent(run: int) -> None:
    """Return the W3C traceparent of a run. No row if it was not traced."""

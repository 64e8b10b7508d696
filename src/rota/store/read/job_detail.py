"""Read-only queries about one job: its steps, waits, signals, progress and log lines."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model.document import Mark, Payload, StoredError
from rota.store.query import Params, statement

NO_LIMIT = 2**31 - 1

MAX_COUNTED_LINES = 10_000
"""Number of log lines up to which they are counted exactly."""


class StepRow(msgspec.Struct, frozen=True):
    kind: str
    name: str
    number: int
    position: Annotated[int, Meta(description="Place in the journal.")]
    in_main_branch: bool
    open: Annotated[bool, Meta(description="True if it has no result yet.")]
    tries: int
    at: datetime
    seconds: float | None
    until: datetime | None
    result_preview: Annotated[str | None, Mark.INTERNAL]
    """First characters of the result."""
    result: Payload
    """Complete result, with `with_values`."""
    error: StoredError
    total: Annotated[int, Mark.INTERNAL]
    """Number of steps of the job."""


class WaitRow(msgspec.Struct, frozen=True):
    job: int
    kind: str
    name: str
    number: int
    tries: int
    until: datetime | None


class SignalRow(msgspec.Struct, frozen=True):
    name: str
    at: (
        Annotated[
            datetime, Meta(description="Time at which it was sent; null while it is awaited.")
        ]
        | None
    )
    payload_preview: Annotated[str | None, Mark.INTERNAL]
    payload: Payload
    waiting_jobs: Annotated[list[int], Mark.INTERNAL]
    """Jobs that waited for it."""


class JobProgressRow(msgspec.Struct, frozen=True):
    at: datetime
    done: float
    total: float | None
    note: str | None


class LogRow(msgspec.Struct, frozen=True):
    at: datetime
    attempt: int
    message: str
    total: Annotated[int, Mark.INTERNAL]
    """Number of lines; at least this many if it is MAX_COUNTED_LINES."""


@statement("view/steps", StepRow)
def steps(job: int, limit: int = NO_LIMIT, *, with_values: bool = False) -> None:
    """Return the last steps of a job, newest first; with `with_values` including their results."""


@statement("view/open_waits", WaitRow)
def open_waits(run: int) -> None:
    """Return the waits of a job, or of the jobs of a run."""


@statement("view/signals", SignalRow)
def signals(run: int, limit: int | None = None, *, with_values: bool = False) -> None:
    """Return the signals that a run received or waited for; with `with_values` including whole payloads."""


@statement("view/progress", JobProgressRow)
def progress(job: int) -> None: ...


@statement("view/logs", LogRow)
def logs(job: int, limit: int = NO_LIMIT) -> Params:
    """Return the last log lines, newest first."""
    return {"count_limit": max(MAX_COUNTED_LINES, min(limit, NO_LIMIT))}

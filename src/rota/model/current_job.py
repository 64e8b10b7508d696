"""Context variables with the job that the current code runs for, and its worker.

They are set around every attempt, in a coroutine, a thread or a separate process. A log record can
therefore name its job, even if a library wrote it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class CurrentJob(Protocol):
    """Attempt at a job."""

    job: int
    run: int | None
    task: str
    attempt: int


job: ContextVar[CurrentJob | None] = ContextVar("rota job", default=None)
worker: ContextVar[int | None] = ContextVar("rota worker", default=None)

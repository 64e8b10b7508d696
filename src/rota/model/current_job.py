"""What this line of code is at work for: the job, and the worker that runs it.

Set around every attempt, wherever its code runs (a coroutine, a thread, a process of its own), so that
whoever writes a log line meanwhile can say for which job, however deep in whose library it is written.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class CurrentJob(Protocol):
    """One attempt at one job."""

    job: int
    run: int | None
    task: str
    attempt: int


job: ContextVar[CurrentJob | None] = ContextVar("rota work", default=None)
worker: ContextVar[int | None] = ContextVar("rota worker", default=None)

"""Services that the context of a job needs, as one value.

A worker session builds it for its jobs. A simulation and a replay check build one without storage: they
keep the journal in memory or only read it, and refuse transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from rota.engine.durable.step_writer import StepWriter
from rota.engine.notify.notifier import Notifier
from rota.engine.telemetry.tracing import Tracing
from rota.model.context import BoundCall, Failure
from rota.model.outcome import Outcome
from rota.model.task import TaskDefinition
from rota.store.database import Database
from rota.store.jobs import ClaimedJob
from rota.store.raw_connections import RawConnections


class Clock(Protocol):
    def now(self) -> datetime: ...


class Slots(Protocol):
    def parked(self, job: ClaimedJob) -> AbstractContextManager[None]:
        """Free the slot of a job while it only waits."""

    def finish_detached(self, job: ClaimedJob, outcome: Outcome) -> None:
        """Record the outcome of a job whose code does not end."""


class CallRunner(Protocol):
    async def run_calls(
        self,
        job: ClaimedJob,
        number: int,
        calls: Sequence[BoundCall[Any]],
        concurrency: int | None,
        return_exceptions: bool,
    ) -> list[Any]: ...

    async def failures(self, job: ClaimedJob) -> list[Failure]: ...


class ProgressWriter(Protocol):
    def progress(
        self, job: ClaimedJob, done: float, total: float | None, note: str | None
    ) -> None: ...

    def log(self, job: ClaimedJob, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class JobStorage:
    """Access to the database on behalf of a worker's jobs, under its fence."""

    worker: int
    database: Database
    raw_connections: RawConnections
    notifier: Notifier
    step_writer: StepWriter
    expected_nonces: set[UUID]
    """Nonces of claims that were requested and not confirmed yet, so that the worker recognises them."""


@dataclass(frozen=True, slots=True)
class JobServices:
    tasks: Mapping[str, TaskDefinition]
    payload_limit: int
    clock: Clock
    slots: Slots
    child_calls: CallRunner
    progress_writer: ProgressWriter
    tracing: Tracing
    is_draining: Callable[[], bool]
    step_threads: ThreadPoolExecutor | None = None
    """Threads for steps that are plain functions and belong to a coroutine; None: those of the loop."""
    storage: JobStorage | None = None
    """None in a simulation."""

"""Check whether a job in progress can continue with this code, without any effect.

The job's arguments are decoded as in a worker. Then its function replays the job's journal until it
reaches a new operation; there the check ends, before the operation begins. So nothing is started or
stored, and no step runs. But code of the function between its steps does run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from inspect import Parameter
from typing import Any, Literal, NoReturn

import msgspec

from rota.engine.db_clock import DatabaseClock
from rota.engine.durable.journal import SuspendAttempt
from rota.engine.execution.call import BoundFlow, BoundTask
from rota.engine.execution.child_calls import CallResults, ReadOnlyDatabase, digest, validate_calls
from rota.engine.simulation.attempt import SimulatedAttempt, Stubs
from rota.errors import (
    ChildCallsChanged,
    DefinitionError,
    ReplayMismatch,
    Requeue,
    RetryLater,
    RotaError,
)
from rota.model import codec
from rota.model.context import BoundCall, Failure
from rota.model.journal import JournalEntry
from rota.model.outcome import FinalOutcome, Quarantined, Retried
from rota.model.task import TaskDefinition
from rota.store import runs
from rota.store.jobs import ClaimedJob

REPLAY_TIMEOUT_SECONDS = 10.0
"""Seconds for the code to replay the journal."""

ProblemKind = Literal["arguments", "replay", "error"]


class ReplayProblem(msgspec.Struct, frozen=True):
    """Reason why a job could not continue."""

    kind: ProblemKind
    reason: str
    timed_out: bool = False
    """True if the code took too long; it keeps running if it runs in a thread."""


_current_check: ContextVar[_ReplayCheck | None] = ContextVar("rota replay check", default=None)

_ID_DECODER = msgspec.json.Decoder(dict[str, int])


def input_job_ids(inputs: str | None) -> dict[str, int]:
    """Return the ids of the jobs that provide a job's inputs, by parameter name."""
    return _ID_DECODER.decode(inputs) if inputs else {}


def check_arguments(
    task: TaskDefinition, args: str, inputs: str | None, results: Mapping[int, str | None]
) -> ReplayProblem | None:
    """Return a problem if a job's arguments no longer fit the task.

    They include the results the job takes, if known. Results of jobs that have not ended are assumed to
    fit.
    """
    ids = input_job_ids(inputs)
    parts = [
        f'"{parameter}":{results[id] or "null"}' for parameter, id in ids.items() if id in results
    ]
    own_args = args[1:-1].strip()
    document = "{" + ",".join([own_args, *parts] if own_args else parts) + "}"
    pending = {parameter for parameter, id in ids.items() if id not in results}
    try:
        for definition in filter(None, (task, task.skip_if)):
            _decoder(definition, pending).decode(document)
    except (msgspec.ValidationError, ValueError) as error:
        return ReplayProblem("arguments", codec.describe(error))
    except (DefinitionError, NotImplementedError) as error:
        return ReplayProblem("arguments", str(error))
    return None


def _decoder(task: TaskDefinition, pending: set[str]) -> msgspec.json.Decoder[dict[str, Any]]:
    if not pending:
        return task.arguments_decoder
    return task.decoder_for(
        {
            name: (task.hint(name), parameter.default is Parameter.empty)
            for name, parameter in task.parameters.items()
            if name not in pending
        },
        "an argument",
    )


async def stop_here() -> NoReturn:
    """Stop the replay check at an operation that would have an effect."""
    check = _current_check.get()
    if check is None:
        raise RotaError("no run can be started during a replay check")
    check.refuse("")


async def check_replay(
    task: TaskDefinition,
    job: ClaimedJob,
    clock: DatabaseClock,
    database: ReadOnlyDatabase,
    limit: int,
) -> ReplayProblem | None:
    """Replay the job's journal with the code. Return None if the job can continue."""
    check = _ReplayCheck(task, job, clock, database, limit)
    _current_check.set(check)
    try:
        async with asyncio.timeout(REPLAY_TIMEOUT_SECONDS):
            outcome = await check.run()
    except TimeoutError:
        reason = (
            f"the code did not reach the end of its journal within {REPLAY_TIMEOUT_SECONDS:g} s; "
            "the check was stopped"
        )
        return ReplayProblem("error", reason, timed_out=True)
    raised = check.raised
    if check.is_discarded:
        return None
    match outcome:
        case Quarantined(error) if isinstance(raised, ReplayMismatch):
            return ReplayProblem(
                "replay", f"reached {raised.actual}, but its journal has {raised.expected} here"
            )
        case (
            Quarantined(error=error)
            | Retried(error=error)
            | FinalOutcome(state="failed", error=error)
        ):
            if isinstance(raised, RetryLater | Requeue):
                return None
            if isinstance(raised, ChildCallsChanged):
                return ReplayProblem("replay", str(raised))
            stored_error = codec.decode_error(None if error is None else error.encode())
            return ReplayProblem(
                "error", f"{stored_error.type}: {stored_error.message}".rstrip(": ")
            )
    return None


class _ReplayCheck(SimulatedAttempt):
    """Attempt that returns stored results, and stops at the first operation without one."""

    def __init__(
        self,
        task: TaskDefinition,
        job: ClaimedJob,
        clock: DatabaseClock,
        database: ReadOnlyDatabase,
        limit: int,
    ) -> None:
        super().__init__(task, job, Stubs(), limit)
        self._clock = clock
        self._database = database
        self._call_results = CallResults(database)

    def now(self) -> datetime:
        return self._clock.now()

    async def write(self, entries: Sequence[JournalEntry]) -> None:
        await self.discard()

    async def on_step_begin(self, entry: JournalEntry) -> None:
        await self.discard()

    async def read_signal(self, name: str) -> str | None:
        await self.discard()

    async def run_calls(
        self,
        job: ClaimedJob,
        number: int,
        calls: Sequence[BoundCall[Any]],
        concurrency: int | None,
        return_exceptions: bool,
    ) -> list[Any]:
        bound: list[BoundTask[Any] | BoundFlow] = validate_calls(calls, concurrency)
        if not bound:
            return []
        found = await self._database.run_with_retry(runs.calls(job.job, number))
        if not found:
            await self.discard()
        [previous] = found
        if previous.digest != digest(bound):
            raise ChildCallsChanged(
                f"makes other calls than it had made (run {previous.run}), as its call {number + 1}"
            )
        if previous.state is None or (previous.state != "succeeded" and not return_exceptions):
            await self.discard()  # the job waits for them, or makes them again
        children = await self._database.run_with_retry(runs.call_results(previous.run))
        return await self._call_results.read(bound, children, return_exceptions)

    async def failures(self, job: ClaimedJob) -> list[Failure]:
        return await self._call_results.failures(job)

    def refuse(self, operation: str) -> NoReturn:
        # The operation runs again in every attempt: no result of it is stored.
        self.is_discarded = True
        raise asyncio.CancelledError if self.task.is_async else SuspendAttempt

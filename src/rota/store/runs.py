"""Runs: what they came to, and what can be done about them as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.store.array_literals import int_array
from rota.store.query import Query


class RunOutcome(msgspec.Struct, frozen=True):
    run: int
    name: str
    """Of its task or its flow; a job's calls have none."""
    is_flow: bool
    state: str | None
    result: bytes | None
    error: bytes | None
    is_failing: bool
    """It is open, and something in it has failed."""


class JobResultRow(msgspec.Struct, frozen=True):
    task: str
    state: str | None
    result: bytes | None


class FailureRow(msgspec.Struct, frozen=True):
    job: int
    task: str
    state: str
    error: bytes | None


class ReleaseResult(msgspec.Struct, frozen=True):
    queues: list[str]
    runs: list[int]
    pending: bool


class CallsRow(msgspec.Struct, frozen=True):
    run: int
    digest: str
    attempt: int
    state: str | None
    is_failing: bool


class CalledRow(msgspec.Struct, frozen=True):
    run: int
    is_flow: bool
    state: str | None
    result: bytes | None
    error: bytes | None


def outcome(runs: Sequence[int]) -> Query[RunOutcome]:
    return Query("run/outcome", {"runs": int_array(runs)}, RunOutcome)


def results(run: int) -> Query[JobResultRow]:
    """What the last tasks of a flow came to."""
    return Query("run/results", {"run": run}, JobResultRow)


def failures(run: int, limit: int = 10) -> Query[FailureRow]:
    """Which jobs of a run failed, the first first."""
    return Query("run/failures", {"run": run, "limit": limit}, FailureRow)


def cancel(run: int) -> Query[str | None]:
    return Query("run/cancel", {"run": run}, _identity)


def retry(run: int, attempt: int | None = None) -> Query[list[str] | None]:
    """Try a run that ended badly once more. Answers the queues with news; None: nothing to try again."""
    return Query("run/retry", {"run": run, "attempt": attempt}, _identity)


def fork(run: int, task: str, trace: str | None = None) -> Query[tuple[int | None, list[str]]]:
    params = {"run": run, "task": task, "trace": trace}
    return Query("run/fork", params, lambda forked, queues: (forked, queues))


def fork_job(
    run: int, step: str, args: str | None, trace: str | None = None
) -> Query[tuple[int | None, str]]:
    """Run a task's job once more from a step on: the new run, None if there is no such step, and its
    queue."""
    params = {"run": run, "step": step, "args": args, "trace": trace}
    return Query("run/fork_job", params, lambda forked, queue: (forked, queue))


def release_pending(limit: int) -> Query[ReleaseResult]:
    """Pass on ends that could not be passed on before."""
    return Query("run/settle", {"limit": limit}, ReleaseResult)


def calls(parent: int, call_number: int) -> Query[CallsRow]:
    """The calls with this number that a job has made already, if it has."""
    return Query("run/calls", {"parent": parent, "number": call_number}, CallsRow)


def call_results(run: int) -> Query[CalledRow]:
    """What a job's calls came to: tasks, then flows, each in the order of the calls."""
    return Query("run/called", {"run": run}, CalledRow)


def _identity(value: Any) -> Any:
    return value

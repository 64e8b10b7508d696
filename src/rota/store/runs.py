"""Queries for runs: outcomes, results, cancel, retry and fork."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.store.array_literals import int_array
from rota.store.query import Query, identity, statement


class RunOutcome(msgspec.Struct, frozen=True):
    run: int
    name: str
    """Name of the task or flow; empty for calls of a job."""
    is_flow: bool
    state: str | None
    result: bytes | None
    error: bytes | None
    is_failing: bool
    """True if the run is open and one of its jobs has failed."""


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


@statement("run/results", JobResultRow)
def results(run: int) -> None:
    """Return the results of the final tasks of a flow."""


@statement("run/failures", FailureRow)
def failures(run: int, limit: int = 10) -> None:
    """Return the failed jobs of a run, first failure first."""


def cancel(run: int) -> Query[str | None]:
    return Query("run/cancel", {"run": run}, identity)


def retry(run: int, attempt: int | None = None) -> Query[list[str] | None]:
    """Retry an unsuccessful run. Return the queues that received jobs; None if nothing is to be retried."""
    return Query("run/retry", {"run": run, "attempt": attempt}, identity)


def fork(run: int, task: str, trace: str | None = None) -> Query[tuple[int | None, list[str]]]:
    params = {"run": run, "task": task, "trace": trace}
    return Query("run/fork", params, lambda forked, queues: (forked, queues))


def fork_job(
    run: int, step: str, args: str | None, trace: str | None = None
) -> Query[tuple[int | None, str]]:
    """Run a task again from a step on.

    Return the new run, or None if there is no such step, and its queue.
    """
    params = {"run": run, "step": step, "args": args, "trace": trace}
    return Query("run/fork_job", params, lambda forked, queue: (forked, queue))


@statement("run/release_pending", ReleaseResult)
def release_pending(limit: int) -> None:
    """Release successors that are left in `pending_releases`."""


@statement("run/calls", CallsRow)
def calls(parent: int, call_number: int) -> None:
    """Return the run of a job's calls with this number, if they were made already."""


@statement("run/call_results", CalledRow)
def call_results(run: int) -> None:
    """Return the results of a job's calls: tasks, then flows, each in the order of the calls."""

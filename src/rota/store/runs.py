"""Runs: what they came to, and what can be done about them as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.store.arrays import of_ints
from rota.store.query import Query


class Ending(msgspec.Struct, frozen=True):
    run: int
    name: str
    """Of its task or its flow; a job's calls have none."""
    is_flow: bool
    state: str | None
    result: bytes | None
    error: bytes | None
    failing: bool
    """It is open, and something in it has failed."""


class Result(msgspec.Struct, frozen=True):
    task: str
    state: str | None
    result: bytes | None


class Failure(msgspec.Struct, frozen=True):
    job: int
    task: str
    state: str
    error: bytes | None


class Settled(msgspec.Struct, frozen=True):
    queues: list[str]
    runs: list[int]
    rest: bool


class Calls(msgspec.Struct, frozen=True):
    run: int
    digest: str
    attempt: int
    state: str | None
    failing: bool


class Called(msgspec.Struct, frozen=True):
    run: int
    is_flow: bool
    state: str | None
    result: bytes | None
    error: bytes | None


def outcome(runs: Sequence[int]) -> Query[Ending]:
    return Query("run/outcome", {"runs": of_ints(runs)}, Ending)


def results(run: int) -> Query[Result]:
    """What the last tasks of a flow came to."""
    return Query("run/results", {"run": run}, Result)


def failures(run: int, limit: int = 10) -> Query[Failure]:
    """Which jobs of a run failed, the first first."""
    return Query("run/failures", {"run": run, "limit": limit}, Failure)


def cancel(run: int) -> Query[str | None]:
    return Query("run/cancel", {"run": run}, _same)


def retry(run: int, attempt: int | None = None) -> Query[list[str] | None]:
    """Try a run that ended badly once more. Answers the queues with news; None: nothing to try again."""
    return Query("run/retry", {"run": run, "attempt": attempt}, _same)


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


def settle(limit: int) -> Query[Settled]:
    """Pass on ends that could not be passed on before."""
    return Query("run/settle", {"limit": limit}, Settled)


def calls(parent: int, number: int) -> Query[Calls]:
    """The calls with this number that a job has made already, if it has."""
    return Query("run/calls", {"parent": parent, "number": number}, Calls)


def called(run: int) -> Query[Called]:
    """What a job's calls came to: tasks, then flows, each in the order of the calls."""
    return Query("run/called", {"run": run}, Called)


def _same(value: Any) -> Any:
    return value

"""Starting runs of many jobs, and the results their jobs hand to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.store.arrays import inside, of_ints
from rota.store.jobs import Started, in_seconds
from rota.store.query import Query


class Columns(msgspec.Struct, frozen=True):
    """The jobs of a run as columns, each the inside of an array literal: most of a flow's are the same
    for every run and are written once."""

    tasks: str
    queues: str
    lanes: str
    args: str
    options: str
    rules: str
    parents: str
    """How many each waits for."""
    children: str
    """The numbers of those that wait for it; 0 is the run."""
    takes: str
    """Argument → number of the job whose result it is, as JSON."""


def with_args(jobs: Columns, args: str, lanes: str) -> Columns:
    """The same jobs with arguments, and priorities, of one run."""
    return msgspec.structs.replace(jobs, args=args, lanes=lanes)


def with_options(jobs: Columns, options: str, size: int) -> Columns:
    """The same jobs, each started with these options."""
    return msgspec.structs.replace(jobs, options=inside([options] * size))


class StartRun(msgspec.Struct, frozen=True):
    """One run to be started with all its jobs, checked and encoded."""

    flow: str | None
    input: str
    size: int
    open: int
    """How many the run itself waits for."""
    jobs: Columns
    part: int | None = None
    """The number of the run it is a part of, among those started with it."""
    key: str | None = None
    unique_for: timedelta | None = None
    unique_open: bool = False
    at: datetime | None = None
    delay: timedelta | None = None
    expires: datetime | None = None
    expires_in: timedelta | None = None


class Caller(msgspec.Struct, frozen=True):
    """The job that makes calls, and the claim it is held by."""

    job: int
    claim: int
    worker: int
    number: int
    """Which of its calls these are."""
    attempt: int = 1


def start(
    runs: Sequence[StartRun],
    *,
    notify: bool,
    caller: Caller | None = None,
    traces: Sequence[str | None] | None = None,
) -> Query[Started]:
    """Start runs with all their jobs, in one statement; each at its place in a trace, if there are any."""
    befores, total = [], 0
    for run in runs:
        befores.append(total)
        total += run.size
    jobs = [run.jobs for run in runs if run.size]
    return Query(
        "flow/start",
        {
            "parent": caller and caller.job,
            "claim": caller and caller.claim,
            "worker": caller and caller.worker,
            "number": caller and caller.number,
            "attempt": caller and caller.attempt,
            "flows": [run.flow for run in runs],
            "inputs": [run.input for run in runs],
            "opens": of_ints(run.open for run in runs),
            "befores": of_ints(befores),
            "sizes": of_ints(run.size for run in runs),
            "parts": _of_some(run.part for run in runs),
            "keys": [run.key for run in runs],
            "unique_fors": [in_seconds(run.unique_for) for run in runs],
            "unique_opens": _joined("t" if run.unique_open else "f" for run in runs),
            "ats": [run.at for run in runs],
            "delays": [in_seconds(run.delay) for run in runs],
            "expires": [run.expires for run in runs],
            "expires_ins": [in_seconds(run.expires_in) for run in runs],
            "owners": _joined(
                ",".join([str(number)] * run.size) for number, run in enumerate(runs, 1) if run.size
            ),
            "tasks": _joined(each.tasks for each in jobs),
            "queues": _joined(each.queues for each in jobs),
            "lanes": _joined(each.lanes for each in jobs),
            "args": _joined(each.args for each in jobs),
            "options": _joined(each.options for each in jobs),
            "rules": _joined(each.rules for each in jobs),
            "parents": _joined(each.parents for each in jobs),
            "children": _joined(each.children for each in jobs),
            "takes": _joined(each.takes for each in jobs),
            "notify": notify,
            "traces": traces and list(traces),
        },
        Started,
    )


def inputs(jobs: Sequence[int]) -> Query[tuple[int, str | None]]:
    """The results of these jobs; no row: it has none."""
    return Query("flow/inputs", {"jobs": of_ints(jobs)}, lambda job, result: (job, result))


def _joined(parts: Iterable[str]) -> str:
    return "{" + ",".join(parts) + "}"


def _of_some(values: Iterable[int | None]) -> str:
    return _joined("NULL" if value is None else str(value) for value in values)

"""Starting runs of many jobs, and the results their jobs hand to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.store.array_literals import array_items, int_array
from rota.store.jobs import StartedJob, in_seconds
from rota.store.query import Query


class JobColumns(msgspec.Struct, frozen=True):
    """The jobs of a run as columns, each the inside of an array literal: most of a flow's are the same
    for every run and are written once."""

    tasks: str
    queues: str
    priorities: str
    args: str
    options: str
    rules: str
    predecessor_counts: str
    """How many each waits for."""
    successors: str
    """The numbers of those that wait for it; 0 is the run."""
    input_jobs: str
    """Argument → number of the job whose result it is, as JSON."""


def with_args(jobs: JobColumns, args: str, priorities: str) -> JobColumns:
    """The same jobs with arguments, and priorities, of one run."""
    return msgspec.structs.replace(jobs, args=args, priorities=priorities)


def with_options(jobs: JobColumns, options: str, size: int) -> JobColumns:
    """The same jobs, each started with these options."""
    return msgspec.structs.replace(jobs, options=array_items([options] * size))


class StartRun(msgspec.Struct, frozen=True):
    """One run to be started with all its jobs, checked and encoded."""

    flow: str | None
    input: str
    size: int
    open_jobs: int
    """How many the run itself waits for."""
    jobs: JobColumns
    part_of: int | None = None
    """The number of the run it is a part of, among those started with it."""
    key: str | None = None
    unique_for: timedelta | None = None
    unique_open: bool = False
    at: datetime | None = None
    delay: timedelta | None = None
    expires: datetime | None = None
    expires_in: timedelta | None = None


class CallingJob(msgspec.Struct, frozen=True):
    """The job that makes calls, and the claim it is held by."""

    job: int
    claim: int
    worker: int
    call_number: int
    """Which of its calls these are."""
    attempt: int = 1


def start(
    runs: Sequence[StartRun],
    *,
    notify: bool,
    caller: CallingJob | None = None,
    traces: Sequence[str | None] | None = None,
) -> Query[StartedJob]:
    """Start runs with all their jobs, in one statement; each at its place in a trace, if there are any."""
    offsets, total = [], 0
    for run in runs:
        offsets.append(total)
        total += run.size
    jobs = [run.jobs for run in runs if run.size]
    return Query(
        "flow/start",
        {
            "parent": caller and caller.job,
            "claim": caller and caller.claim,
            "worker": caller and caller.worker,
            "number": caller and caller.call_number,
            "attempt": caller and caller.attempt,
            "flows": [run.flow for run in runs],
            "inputs": [run.input for run in runs],
            "opens": int_array(run.open_jobs for run in runs),
            "befores": int_array(offsets),
            "sizes": int_array(run.size for run in runs),
            "parts": _nullable_int_array(run.part_of for run in runs),
            "keys": [run.key for run in runs],
            "unique_fors": [in_seconds(run.unique_for) for run in runs],
            "unique_opens": _array("t" if run.unique_open else "f" for run in runs),
            "ats": [run.at for run in runs],
            "delays": [in_seconds(run.delay) for run in runs],
            "expires": [run.expires for run in runs],
            "expires_ins": [in_seconds(run.expires_in) for run in runs],
            "owners": _array(
                ",".join([str(number)] * run.size) for number, run in enumerate(runs, 1) if run.size
            ),
            "tasks": _array(each.tasks for each in jobs),
            "queues": _array(each.queues for each in jobs),
            "lanes": _array(each.priorities for each in jobs),
            "args": _array(each.args for each in jobs),
            "options": _array(each.options for each in jobs),
            "rules": _array(each.rules for each in jobs),
            "parents": _array(each.predecessor_counts for each in jobs),
            "children": _array(each.successors for each in jobs),
            "takes": _array(each.input_jobs for each in jobs),
            "notify": notify,
            "traces": traces and list(traces),
        },
        StartedJob,
    )


def job_results(jobs: Sequence[int]) -> Query[tuple[int, str | None]]:
    """The results of these jobs; no row: it has none."""
    return Query("flow/inputs", {"jobs": int_array(jobs)}, lambda job, result: (job, result))


def _array(parts: Iterable[str]) -> str:
    return "{" + ",".join(parts) + "}"


def _nullable_int_array(values: Iterable[int | None]) -> str:
    return _array("NULL" if value is None else str(value) for value in values)

"""Queries that start runs with many jobs, and that read the results jobs pass to their successors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, chain
from typing import Any

import msgspec

from rota.store.array_literals import array_items, int_array
from rota.store.jobs import StartedJob, in_seconds
from rota.store.query import Query


class JobColumns(msgspec.Struct, frozen=True):
    """Jobs of a run as columns, each the inside of an array literal.

    Most columns are the same for every run of a flow and are rendered once.
    """

    tasks: str
    queues: str
    priorities: str
    args: str
    options: str
    rules: str
    predecessor_counts: str
    """Number of predecessors of each job."""
    successors: str
    """Numbers of the jobs that wait for each job; 0 is the run itself."""
    input_jobs: str
    """Argument → number of the job whose result it takes, as JSON."""


def with_args(jobs: JobColumns, args: str, priorities: str) -> JobColumns:
    """Return the same jobs with the arguments and priorities of one run."""
    return msgspec.structs.replace(jobs, args=args, priorities=priorities)


def with_options(jobs: JobColumns, options: str, size: int) -> JobColumns:
    """Return the same jobs, each with these options."""
    return msgspec.structs.replace(jobs, options=array_items([options] * size))


class StartRun(msgspec.Struct, frozen=True):
    """Run to start with all its jobs, validated and encoded."""

    flow: str | None
    input: str
    size: int
    open_jobs: int
    """Number of jobs that the run itself waits for."""
    jobs: JobColumns
    part_of: int | None = None
    """Number of the run that this one belongs to, among those started with it."""
    key: str | None = None
    unique_for: timedelta | None = None
    unique_open: bool = False
    at: datetime | None = None
    delay: timedelta | None = None
    expires: datetime | None = None
    expires_in: timedelta | None = None


class CallingJob(msgspec.Struct, frozen=True):
    """Job that starts child runs, and the claim that holds it."""

    parent: int
    claim: int
    worker: int
    call_number: int
    """Number of this call within the job's code."""
    attempt: int = 1


_NO_CALLER = dict.fromkeys(CallingJob.__struct_fields__)


def start(
    runs: Sequence[StartRun],
    *,
    notify: bool,
    caller: CallingJob | None = None,
    traces: Sequence[str | None] | None = None,
) -> Query[StartedJob]:
    """Start runs with all their jobs, in one statement. `traces` has a trace context for each run."""
    params = {
        **(msgspec.structs.asdict(caller) if caller else _NO_CALLER),
        **_run_params(runs),
        **_job_params([run.jobs for run in runs if run.size]),
        "notify": notify,
        "traces": traces and list(traces),
    }
    return Query("flow/start", params, StartedJob)


def _run_params(runs: Sequence[StartRun]) -> dict[str, Any]:
    """Return one array for each column of the runs."""
    offsets = list(accumulate((run.size for run in runs), initial=0))[: len(runs)]
    numbers = ([str(number)] * run.size for number, run in enumerate(runs, 1))
    return {
        "flows": [run.flow for run in runs],
        "inputs": [run.input for run in runs],
        "open_jobs": int_array(run.open_jobs for run in runs),
        "offsets": int_array(offsets),
        "sizes": int_array(run.size for run in runs),
        "part_of": _nullable_int_array(run.part_of for run in runs),
        "keys": [run.key for run in runs],
        "unique_fors": [in_seconds(run.unique_for) for run in runs],
        "unique_opens": _array("t" if run.unique_open else "f" for run in runs),
        "ats": [run.at for run in runs],
        "delays": [in_seconds(run.delay) for run in runs],
        "expires": [run.expires for run in runs],
        "expires_ins": [in_seconds(run.expires_in) for run in runs],
        "run_numbers": _array(chain.from_iterable(numbers)),
    }


def _job_params(jobs: Sequence[JobColumns]) -> dict[str, Any]:
    """Return one array for each column of the jobs of all runs."""
    fields = JobColumns.__struct_fields__
    return {name: _array(getattr(each, name) for each in jobs) for name in fields}


def job_results(jobs: Sequence[int]) -> Query[tuple[int, str | None]]:
    """Return the results of these jobs. Jobs without a result have no row."""
    return Query("flow/job_results", {"jobs": int_array(jobs)}, lambda job, result: (job, result))


def _array(parts: Iterable[str]) -> str:
    return "{" + ",".join(parts) + "}"


def _nullable_int_array(values: Iterable[int | None]) -> str:
    return _array("NULL" if value is None else str(value) for value in values)

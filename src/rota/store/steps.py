"""Queries for steps: record journal entries of many jobs at once, and read them for replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rota.model.journal import JournalEntry, StoredEntry
from rota.store.array_literals import bool_array, int_array, microsecond_array, text_array
from rota.store.jobs import ClaimedJob, MoveResult
from rota.store.query import Params, Query, no_row, statement


class UnwrittenEntry(msgspec.Struct, frozen=True):
    """Entry that was not written."""

    index: int
    is_held: bool
    """True if the worker still holds the job: an entry existed already and is kept."""


class StoredEntryRow(msgspec.Struct, frozen=True):
    job: int
    entry: StoredEntry


def record(
    worker: int, entries: Sequence[tuple[ClaimedJob, JournalEntry]]
) -> Query[UnwrittenEntry]:
    """Record journal entries of many jobs. Return those that were not written."""
    steps = [entry for _, entry in entries]
    return Query(
        "step/record",
        {
            "worker": worker,
            "claims": int_array([job.claim for job, _ in entries]),
            "jobs": int_array([job.job for job, _ in entries]),
            "kinds": int_array([step.kind for step in steps]),
            "names": text_array([step.name for step in steps]),
            "numbers": int_array([step.number for step in steps]),
            "positions": int_array([step.position for step in steps]),
            "in_main_branch": bool_array([step.in_main_branch for step in steps]),
            "is_open": bool_array([step.is_open for step in steps]),
            "tries": int_array([step.tries for step in steps]),
            "durations": microsecond_array([step.duration for step in steps]),
            "delays": _nullable_float_array([step.seconds for step in steps]),
            "untils": text_array([step.until for step in steps]),
            "results": text_array([step.result for step in steps]),
            "errors": text_array([step.error for step in steps]),
            "branch_keys": text_array([step.branch_key for step in steps]),
        },
        UnwrittenEntry,
    )


def read(jobs: Sequence[ClaimedJob]) -> Query[StoredEntryRow]:
    """Return the recorded entries of jobs."""
    return Query(
        "step/read",
        {
            "jobs": int_array([job.job for job in jobs]),
            "runs": int_array([job.job if job.run is None else job.run for job in jobs]),
        },
        lambda job, *kept: StoredEntryRow(job, StoredEntry(*kept)),
    )


def suspend(
    worker: int, jobs: Sequence[ClaimedJob], waits: Sequence[tuple[ClaimedJob, JournalEntry]]
) -> Query[MoveResult]:
    """Suspend jobs until one of the entries they wait for is complete. Return the jobs accepted."""
    return Query(
        "job/suspend",
        {
            "worker": worker,
            "claims": int_array([job.claim for job in jobs]),
            "jobs": int_array([job.job for job in jobs]),
            "waiting_jobs": int_array([job.job for job, _ in waits]),
            "runs": int_array([job.job if job.run is None else job.run for job, _ in waits]),
            "kinds": int_array([step.kind for _, step in waits]),
            "names": text_array([step.name for _, step in waits]),
            "numbers": int_array([step.number for _, step in waits]),
        },
        MoveResult,
    )


@statement("step/restart", MoveResult)
def restart(worker: int, jobs: Sequence[ClaimedJob], args: Sequence[str]) -> Params:
    """Restart jobs with other arguments. Return the jobs accepted."""
    return {
        "claims": int_array([job.claim for job in jobs]),
        "jobs": int_array([job.job for job in jobs]),
        "args": text_array(args),
    }


class ProgressUpdate(NamedTuple):
    claim: int
    job: int
    done: float
    total: float | None
    note: str | None


def write_progress(updates: Sequence[ProgressUpdate]) -> Query[Any]:
    return Query(
        "step/write_progress",
        {
            "claims": int_array([each.claim for each in updates]),
            "jobs": int_array([each.job for each in updates]),
            "done": [each.done for each in updates],
            "totals": [each.total for each in updates],
            "notes": [each.note for each in updates],
        },
        no_row,
    )


def write_logs(lines: Sequence[tuple[ClaimedJob, float, str]]) -> Query[Any]:
    """Write log lines of jobs, each with its age in seconds."""
    return Query(
        "step/write_logs",
        {
            "jobs": int_array([job.job for job, _, _ in lines]),
            "attempts": int_array([job.attempt for job, _, _ in lines]),
            "ages": [ago for _, ago, _ in lines],
            "messages": [message for *_, message in lines],
        },
        no_row,
    )


def _nullable_float_array(values: Sequence[float | None]) -> str:
    return f"{{{','.join(['NULL' if value is None else repr(value) for value in values])}}}"

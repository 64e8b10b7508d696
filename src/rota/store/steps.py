"""Steps: what the code of jobs has come to, kept for many jobs at once, and read when they run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rota.model.replay import Entry, Kept
from rota.store.arrays import of_flags, of_ints, of_seconds, of_texts
from rota.store.jobs import Claimed, Moved
from rota.store.query import Query


class Unkept(msgspec.Struct, frozen=True):
    """A step that was not kept, by its number in the list, from 1."""

    index: int
    held: bool
    """The job is still this worker's: there is one already, which stands."""


class Known(msgspec.Struct, frozen=True):
    job: int
    kept: Kept


def record(worker: int, entries: Sequence[tuple[Claimed, Entry]]) -> Query[Unkept]:
    """Keep steps of many jobs. Answers those that were not kept."""
    steps = [entry for _, entry in entries]
    return Query(
        "step/record",
        {
            "worker": worker,
            "claims": of_ints([job.claim for job, _ in entries]),
            "jobs": of_ints([job.job for job, _ in entries]),
            "kinds": of_ints([step.kind for step in steps]),
            "names": of_texts([step.name for step in steps]),
            "numbers": of_ints([step.number for step in steps]),
            "positions": of_ints([step.position for step in steps]),
            "own": of_flags([step.own for step in steps]),
            "open": of_flags([step.open for step in steps]),
            "tries": of_ints([step.tries for step in steps]),
            "took": of_seconds([step.took for step in steps]),
            "seconds": _of_some([step.seconds for step in steps]),
            "untils": of_texts([step.until for step in steps]),
            "results": of_texts([step.result for step in steps]),
            "errors": of_texts([step.error for step in steps]),
            "places": of_texts([step.place for step in steps]),
        },
        Unkept,
    )


def of(jobs: Sequence[Claimed]) -> Query[Known]:
    """What jobs have come to before."""
    return Query(
        "step/of",
        {
            "jobs": of_ints([job.job for job in jobs]),
            "runs": of_ints([job.job if job.run is None else job.run for job in jobs]),
        },
        lambda job, *kept: Known(job, Kept(*kept)),
    )


def suspend(
    worker: int,
    jobs: Sequence[Claimed],
    waits: Sequence[tuple[Claimed, Entry]],
) -> Query[Moved]:
    """Lay jobs to sleep until one of the steps they wait for is over. Answers the jobs accepted."""
    return Query(
        "job/suspend",
        {
            "worker": worker,
            "claims": of_ints([job.claim for job in jobs]),
            "jobs": of_ints([job.job for job in jobs]),
            "waiting": of_ints([job.job for job, _ in waits]),
            "runs": of_ints([job.job if job.run is None else job.run for job, _ in waits]),
            "kinds": of_ints([step.kind for _, step in waits]),
            "names": of_texts([step.name for _, step in waits]),
            "numbers": of_ints([step.number for _, step in waits]),
        },
        Moved,
    )


def clear(worker: int, jobs: Sequence[Claimed], args: Sequence[str]) -> Query[Moved]:
    """Let jobs begin anew with other arguments. Answers the jobs accepted."""
    return Query(
        "step/clear",
        {
            "worker": worker,
            "claims": of_ints([job.claim for job in jobs]),
            "jobs": of_ints([job.job for job in jobs]),
            "args": of_texts(args),
        },
        Moved,
    )


class Progress(NamedTuple):
    claim: int
    job: int
    done: float
    total: float | None
    note: str | None


def progress(told: Sequence[Progress]) -> Query[Any]:
    """Keep how far jobs are."""
    return Query(
        "step/progress",
        {
            "claims": of_ints([each.claim for each in told]),
            "jobs": of_ints([each.job for each in told]),
            "done": [each.done for each in told],
            "totals": [each.total for each in told],
            "notes": [each.note for each in told],
        },
        lambda: None,
    )


def log(lines: Sequence[tuple[Claimed, float, str]]) -> Query[Any]:
    """Keep what the code of jobs said, so many seconds ago."""
    return Query(
        "step/log",
        {
            "jobs": of_ints([job.job for job, _, _ in lines]),
            "attempts": of_ints([job.attempt for job, _, _ in lines]),
            "ago": [ago for _, ago, _ in lines],
            "messages": [message for *_, message in lines],
        },
        lambda: None,
    )


def _of_some(values: Sequence[float | None]) -> str:
    return f"{{{','.join(['NULL' if value is None else repr(value) for value in values])}}}"

"""Moves of jobs between places: start, claim, complete, finish, retry, give back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from rota.model.journal import StoredEntry
from rota.store.array_literals import bool_array, int_array, microsecond_array, text_array
from rota.store.query import Query

RECORDED_CLAIM = 0
"""The claim of a job that has recorded its own end: none any more."""


class StartJob(msgspec.Struct, frozen=True, gc=False):
    """One job to be started, checked and encoded."""

    task: str
    args: str
    queue: str
    priority: int = 0
    key: str | None = None
    unique_for: timedelta | None = None
    unique_open: bool = False
    at: datetime | None = None
    delay: timedelta | None = None
    expires: datetime | None = None
    expires_in: timedelta | None = None
    options: str | None = None

    @property
    def is_simple(self) -> bool:
        """Ready at once, with nothing of its own: such jobs can be copied in."""
        return (
            self.key is None
            and self.at is None
            and self.delay is None
            and self.expires is None
            and self.expires_in is None
            and self.options is None
        )


class StartedJob(msgspec.Struct, frozen=True, gc=False):
    run: int
    created: bool


class ClaimedJob(msgspec.Struct, gc=False, eq=False):
    """One job this worker holds. One is made for each job that passes, so it is as light as can be."""

    claim: int
    job: int
    attempt: int
    lost: int
    lane: int
    seq: int
    task: str
    queue: str
    args: str
    options: str | None
    expired: bool | None
    run: int | None
    inputs: str | None
    checkpoint: str | None = None
    has_steps: bool | None = None
    """Whether there are steps of it."""
    trace: str | None = None
    """Where its start was in a trace."""
    queued_seconds: float = -1.0
    """Seconds since it was ready; below 0: nobody knows since when that is."""
    stored_entries: list[StoredEntry] | None = None
    """What its steps came to."""
    trace_links: list[str] | None = None
    """Where those it waited for were in a trace."""
    span: str | None = None
    """Where this attempt is."""


class MoveResult(msgspec.Struct, frozen=True):
    """What became of jobs that left their claims, and of those who waited for them."""

    jobs: list[int]
    """Those accepted; of `complete`, those refused."""
    queues: list[str]
    """Queues that have news."""
    runs: list[int]
    """Runs that ended."""
    pending: bool
    """Whether something is left to settle."""


def start(job: StartJob, *, notify: bool, trace: str | None = None) -> Query[StartedJob]:
    """Start one job; on a connection of the user's it commits or rolls back with the rest."""
    params = {
        "task": job.task,
        "args": job.args,
        "queue": job.queue,
        "priority": job.priority,
        "notify": notify,
        "trace": trace,
    }
    if job.is_simple:
        return Query("job/start_plain", params, StartedJob)
    return Query(
        "job/start",
        {
            **params,
            "key": job.key,
            "unique_for": job.unique_for,
            "unique_open": job.unique_open,
            "at": job.at,
            "delay": job.delay,
            "expires": job.expires,
            "expires_in": job.expires_in,
            "options": job.options,
        },
        StartedJob,
    )


def start_many(jobs: Sequence[StartJob], traces: Sequence[str | None] | None = None) -> Query[int]:
    """Start jobs that have no keys, in one statement; each at its place in a trace, if there are any."""
    return Query(
        "job/start_many",
        {
            "tasks": [job.task for job in jobs],
            "args": [job.args for job in jobs],
            "queues": [job.queue for job in jobs],
            "lanes": [job.priority for job in jobs],
            "ats": [job.at for job in jobs],
            "delays": [in_seconds(job.delay) for job in jobs],
            "expires": [job.expires for job in jobs],
            "expires_in": [in_seconds(job.expires_in) for job in jobs],
            "options": [job.options for job in jobs],
            "traces": traces and list(traces),
        },
        int,
    )


def reserve_ids(count: int) -> Query[str]:
    """Ids for jobs about to be copied in, as one text."""
    return Query("job/ids", {"count": count}, str)


def rows_for_jobs(ids: Sequence[str], jobs: Sequence[StartJob]) -> bytes:
    """Plain jobs in the text form of COPY. JSON has no raw tab or line break, so only \\ is escaped."""
    lines = [
        f"{id}\t{job.priority}\t{job.task}\t{job.queue}\t{job.args}\n"
        for id, job in zip(ids, jobs, strict=True)
    ]
    return "".join(lines).replace("\\", "\\\\").encode()


def rows_for_traced_jobs(ids: Sequence[str], jobs: Sequence[StartJob], trace: str) -> bytes:
    """The same, each with where its start was in a trace."""
    return rows_for_jobs(ids, jobs).replace(b"\n", f"\t{trace}\n".encode())


def rows_for_queued(ids: Sequence[str], jobs: Sequence[StartJob]) -> bytes:
    lines = [
        f"{id}\t{id}\t{job.priority}\t{job.queue}\t{job.task}\n"
        for id, job in zip(ids, jobs, strict=True)
    ]
    return "".join(lines).encode()


def claim(
    worker: int,
    nonce: UUID,
    tasks: Sequence[str] | str,
    queues: Sequence[str],
    priorities: Sequence[int],
    cursors: Sequence[int],
    limit: int,
    *,
    prefetch_only: bool = False,
) -> Query[ClaimedJob]:
    """Take up to `limit` jobs, reading each (queue, lane) from its floor. Of the tasks named (as a literal,
    where it is at hand) or listed by the worker; `patient`: of those, only tasks tried more than once."""
    return Query(
        "job/claim",
        {
            "worker": worker,
            "nonce": nonce,
            "tasks": tasks if isinstance(tasks, str) else text_array(tasks),
            "queues": queues,
            "lanes": int_array(priorities),
            "floors": int_array(cursors),
            "limit": limit,
            "patient": prefetch_only,
        },
        ClaimedJob,
    )


def complete(
    worker: int,
    claims: Sequence[int],
    jobs: Sequence[int],
    results: Sequence[str | None],
    durations: Sequence[float],
    in_runs: Sequence[bool] = (),
) -> Query[MoveResult]:
    """Record successes. Answers the jobs refused, because their claim no longer holds them."""
    return Query(
        "job/complete",
        {
            "worker": worker,
            "claims": int_array(claims),
            "jobs": int_array(jobs),
            "results": text_array(results),
            "took": microsecond_array(durations),
            # Jobs started alone, which are most, send nothing.
            "in_runs": bool_array(in_runs) if True in in_runs else "{}",
        },
        MoveResult,
    )


def finish(
    worker: int,
    claims: Sequence[int],
    jobs: Sequence[int],
    states: Sequence[str],
    errors: Sequence[str | None],
    durations: Sequence[float],
) -> Query[MoveResult]:
    """Record other outcomes. Answers the jobs accepted."""
    return Query(
        "job/finish",
        {
            "worker": worker,
            "claims": int_array(claims),
            "jobs": int_array(jobs),
            "states": states,
            "errors": errors,
            "took": microsecond_array(durations),
        },
        MoveResult,
    )


def retry(
    worker: int,
    claims: Sequence[int],
    jobs: Sequence[int],
    delays: Sequence[float],
    errors: Sequence[str],
    durations: Sequence[float],
) -> Query[MoveResult]:
    """Record failed attempts and lay their jobs to sleep. Answers the jobs accepted."""
    return Query(
        "job/retry",
        {
            "worker": worker,
            "claims": int_array(claims),
            "jobs": int_array(jobs),
            "delays": delays,
            "errors": errors,
            "took": microsecond_array(durations),
        },
        MoveResult,
    )


def return_to_queue(worker: int, claims: Sequence[int], jobs: Sequence[int]) -> Query[MoveResult]:
    """Put jobs back as they were."""
    return Query(
        "job/give_back", {"worker": worker, "claims": int_array(claims), "jobs": jobs}, MoveResult
    )


def recorded(jobs: Sequence[int], claims: Sequence[int]) -> Query[int]:
    return Query("job/recorded", {"jobs": int_array(jobs), "claims": claims}, int)


def claim_suspects(
    worker: int,
    nonce: UUID,
    tasks: Sequence[str] | str,
    queues: Sequence[str],
    limit: int,
    *,
    grave: bool,
) -> Query[ClaimedJob]:
    """Take jobs that were lost with a worker, each into a claim of its own. `grave`: it may be one
    that has to run alone."""
    return Query(
        "job/claim_suspects",
        {
            "worker": worker,
            "nonce": nonce,
            "tasks": tasks if isinstance(tasks, str) else text_array(tasks),
            "queues": queues,
            "limit": limit,
            "grave": grave,
        },
        ClaimedJob,
    )


def finish_lost(
    worker: int,
    claims: Sequence[int],
    jobs: Sequence[int],
    states: Sequence[str],
    errors: Sequence[str | None],
) -> Query[MoveResult]:
    """End jobs whose last attempt was lost with its worker. Answers the jobs accepted."""
    params = {
        "claims": int_array(claims),
        "jobs": int_array(jobs),
        "states": states,
        "errors": errors,
    }
    return Query("job/judge", {"worker": worker, **params}, MoveResult)


def quarantine(
    worker: int, claims: Sequence[int], jobs: Sequence[int], errors: Sequence[str | None]
) -> Query[MoveResult]:
    """Put jobs where nobody claims them. Answers the jobs accepted."""
    params = {"claims": int_array(claims), "jobs": int_array(jobs), "errors": errors}
    return Query("job/quarantine", {"worker": worker, **params}, MoveResult)


def checkpoint(worker: int, claim: int, job: int, state: str) -> Query[int]:
    """Keep how far a job has come. No row: it is no longer this worker's."""
    params = {"worker": worker, "claim": claim, "job": job, "state": state}
    return Query("job/checkpoint", params, int)


def release_quarantined(run: int) -> Query[int]:
    """Let jobs out of quarantine. Answers how many."""
    return Query("job/release", {"run": run}, int)


def in_seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()

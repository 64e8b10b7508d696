"""Queries that move jobs between states: start, claim, complete, finish, retry, return to the queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from rota.model.journal import StoredEntry
from rota.store.array_literals import bool_array, int_array, microsecond_array, text_array
from rota.store.query import Params, Query, statement

RECORDED_CLAIM = 0
"""Claim id of a job that recorded its own end and so has no claim any more."""


class StartJob(msgspec.Struct, frozen=True, gc=False):
    """Job to start, validated and encoded."""

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
        """True if the job is queued at once and has no options of its own: such jobs can be copied in."""
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
    """Job that this worker holds. One object is created for each job, so it is kept small."""

    claim: int
    job: int
    attempt: int
    crashes: int
    """Number of workers that the job has crashed."""
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
    """True if the job has recorded steps."""
    trace: str | None = None
    """Trace context in which the job was started."""
    queued_seconds: float = -1.0
    """Seconds since the job was queued; below 0 if unknown."""
    suspicion: Literal["mild", "grave"] | None = None
    """Set for a job that a lost worker held. Such a job is alone in its claim."""
    stored_entries: list[StoredEntry] | None = None
    """Recorded journal entries."""
    trace_links: list[str] | None = None
    """Trace contexts of the jobs that this one waited for."""
    span: str | None = None
    """Trace context of this attempt."""


class MoveResult(msgspec.Struct, frozen=True):
    """Result of moving jobs out of their claims and of releasing their successors."""

    jobs: list[int]
    """Jobs accepted; for `complete`, the jobs refused."""
    queues: list[str]
    """Queues that received jobs."""
    runs: list[int]
    pending: bool
    """True if releases are left in `pending_releases`."""


def start(job: StartJob, *, notify: bool, trace: str | None = None) -> Query[StartedJob]:
    """Start one job. On a user's connection it commits or rolls back with the user's transaction."""
    if not job.is_simple:
        params = {**msgspec.structs.asdict(job), "notify": notify, "trace": trace}
        return Query("job/start", params, StartedJob)
    params = {
        "task": job.task,
        "args": job.args,
        "queue": job.queue,
        "priority": job.priority,
        "notify": notify,
        "trace": trace,
    }
    return Query("job/start_simple", params, StartedJob)


def start_many(jobs: Sequence[StartJob], traces: Sequence[str | None] | None = None) -> Query[int]:
    """Start jobs without keys, in one statement. `traces` has a trace context for each job."""
    return Query(
        "job/start_many",
        {
            "tasks": [job.task for job in jobs],
            "args": [job.args for job in jobs],
            "queues": [job.queue for job in jobs],
            "priorities": [job.priority for job in jobs],
            "ats": [job.at for job in jobs],
            "delays": [in_seconds(job.delay) for job in jobs],
            "expires": [job.expires for job in jobs],
            "expires_in": [in_seconds(job.expires_in) for job in jobs],
            "options": [job.options for job in jobs],
            "traces": traces and list(traces),
        },
        int,
    )


@statement("job/reserve_ids", str)
def reserve_ids(count: int) -> None:
    """Reserve ids for jobs that will be copied in. Return them as one text."""


def rows_for_jobs(ids: Sequence[str], jobs: Sequence[StartJob]) -> bytes:
    """Return simple jobs in the text format of COPY.

    JSON has no raw tab or line break, so only \\ is escaped.
    """
    lines = [
        f"{id}\t{job.priority}\t{job.task}\t{job.queue}\t{job.args}\n"
        for id, job in zip(ids, jobs, strict=True)
    ]
    return "".join(lines).replace("\\", "\\\\").encode()


def rows_for_traced_jobs(ids: Sequence[str], jobs: Sequence[StartJob], trace: str) -> bytes:
    """Return the same rows, each with the trace context of its start."""
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
    """Claim up to `limit` jobs, reading each queue and priority from its cursor.

    `tasks` are the task names, or an array literal of them; tasks listed in the worker's registration
    are claimed, too. With `prefetch_only`, of the listed ones only prefetchable tasks are.
    """
    return Query(
        "job/claim",
        {
            "worker": worker,
            "nonce": nonce,
            "tasks": tasks if isinstance(tasks, str) else text_array(tasks),
            "queues": queues,
            "priorities": int_array(priorities),
            "cursors": int_array(cursors),
            "limit": limit,
            "prefetch_only": prefetch_only,
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
    """Record successes. Return the jobs refused because their claim no longer holds them."""
    return Query(
        "job/complete",
        {
            "worker": worker,
            "claims": int_array(claims),
            "jobs": int_array(jobs),
            "results": text_array(results),
            "durations": microsecond_array(durations),
            # Most jobs are started alone: the array is then empty.
            "in_runs": bool_array(in_runs) if True in in_runs else "{}",
        },
        MoveResult,
    )


@statement("job/finish", MoveResult)
def finish(
    worker: int,
    claims: Sequence[int],
    jobs: Sequence[int],
    states: Sequence[str],
    errors: Sequence[str | None],
    durations: Sequence[float],
) -> Params:
    """Record other final outcomes. Return the jobs accepted."""
    return {
        "claims": int_array(claims),
        "jobs": int_array(jobs),
        "durations": microsecond_array(durations),
    }


@statement("job/retry", MoveResult)
def retry(
    worker: int,
    claims: Sequence[int],
    jobs: Sequence[int],
    delays: Sequence[float],
    errors: Sequence[str],
    durations: Sequence[float],
) -> Params:
    """Record failed attempts and put their jobs to sleep until the retry. Return the jobs accepted."""
    return {
        "claims": int_array(claims),
        "jobs": int_array(jobs),
        "durations": microsecond_array(durations),
    }


def return_to_queue(worker: int, claims: Sequence[int], jobs: Sequence[int]) -> Query[MoveResult]:
    """Return jobs to the queue unchanged, each from the claim given for it."""
    params = {"worker": worker, "claims": int_array(claims), "jobs": int_array(jobs)}
    return Query("job/return_to_queue", params, MoveResult)


def recorded(jobs: Sequence[int], claims: Sequence[int]) -> Query[int]:
    return Query("job/recorded", {"jobs": int_array(jobs), "claims": claims}, int)


@statement("job/claim_suspects", ClaimedJob)
def claim_suspects(
    worker: int,
    nonce: UUID,
    tasks: Sequence[str] | str,
    queues: Sequence[str],
    limit: int,
    *,
    grave: bool,
) -> Params:
    """Claim suspects, each in its own claim. With `grave`, one that must run exclusively may be claimed."""
    return {"tasks": tasks if isinstance(tasks, str) else text_array(tasks)}


@statement("job/finish_lost", MoveResult)
def finish_lost(
    worker: int,
    claims: Sequence[int],
    jobs: Sequence[int],
    states: Sequence[str],
    errors: Sequence[str | None],
) -> Params:
    """Finish jobs whose last attempt was lost with its worker. Return the jobs accepted."""
    return {"claims": int_array(claims), "jobs": int_array(jobs)}


@statement("job/quarantine", MoveResult)
def quarantine(
    worker: int, claims: Sequence[int], jobs: Sequence[int], errors: Sequence[str | None]
) -> Params:
    """Move jobs to quarantine. Return the jobs accepted."""
    return {"claims": int_array(claims), "jobs": int_array(jobs)}


@statement("job/checkpoint", int)
def checkpoint(worker: int, claim: int, job: int, state: str) -> None:
    """Store a job's checkpoint. No row if this worker no longer holds the job."""


@statement("job/release_quarantined", int)
def release_quarantined(run: int) -> None:
    """Release the jobs of a run from quarantine. Return their number."""


def in_seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()

"""Lost workers, and the recovery of their jobs, directly in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from rota.store import claims, jobs, workers
from rota.store.jobs import ClaimedJob, MoveResult
from rota.store.workers import DeclaredDead, ObservedWorker
from support.stage import Batch, Connection, Stage

HISTORY = ("crashes", "suspicion")
History = tuple[int, str | None]
"""Crashes and suspicion of a job."""

NOTHING = MoveResult([], [], [], False)


async def observe(stage: Stage, worker: int, on: Connection | None = None) -> ObservedWorker:
    """Return the observation of a worker by another one."""
    [beats] = await stage.sql("select beats from rota.workers where id = %s", worker, on=on)
    return ObservedWorker(worker, beats, None)


async def declare_dead(
    stage: Stage, *dead: int, on: Connection | None = None
) -> list[DeclaredDead]:
    """Declare workers dead, as a worker does that no longer observes their heartbeats."""
    return await stage.run(workers.mark_dead([await observe(stage, each, on) for each in dead]), on)


async def reap(
    stage: Stage, claim: int, only: Sequence[int] | None = None, on: Connection | None = None
) -> MoveResult:
    [moved] = await stage.run(claims.reap(claim, only), on)
    return moved


async def orphans(stage: Stage, after: int = 0, limit: int = 1000) -> list[int]:
    return [each.id for each in await stage.run(claims.orphans(after, limit))]


async def lose_worker(stage: Stage, batch: Batch) -> MoveResult:
    """Declare the worker of a batch dead, and take back its jobs."""
    await declare_dead(stage, batch.worker)
    return await reap(stage, batch.id)


async def lost(stage: Stage, count: int, **more: Any) -> list[int]:
    """Start jobs and lose them together with one worker; return their ids."""
    batch = await stage.held(count, **more)
    await lose_worker(stage, batch)
    return batch.jobs


async def suspects(
    stage: Stage,
    worker: int,
    limit: int = 100,
    *,
    grave: bool = True,
    tasks: Sequence[str] = ("work",),
    queues: Sequence[str] = ("default",),
    on: Connection | None = None,
) -> list[Batch]:
    """Claim suspects, as a worker does: each in its own batch."""
    query = jobs.claim_suspects(worker, uuid4(), list(tasks), list(queues), limit, grave=grave)
    return [Batch(worker, each.claim, [each.job], [each]) for each in await stage.run(query, on)]


async def suspect(stage: Stage, worker: int) -> Batch:
    """Claim one suspect."""
    [batch] = await suspects(stage, worker, 1)
    return batch


async def queued_rows(stage: Stage, *columns: str) -> dict[int, Any]:
    """Return the given columns of each queued job; a single column as a plain value."""
    rows = await stage.sql(f"select job, {', '.join(columns)} from rota.queued")
    return {job: rest[0] if len(columns) == 1 else tuple(rest) for job, *rest in rows}


async def start_with(stage: Stage, history: History, count: int = 1, attempt: int = 1) -> list[int]:
    """Start jobs with these crashes and this suspicion."""
    ids = await stage.start_several(count)
    await stage.sql(
        "update rota.queued set crashes = %s, suspicion = %s, attempt = %s where job = any(%s)",
        *(*history, attempt, ids),
    )
    return ids


async def quarantine(stage: Stage, batch: Batch, on: Connection | None = None) -> MoveResult:
    """Quarantine the jobs of a batch, as the engine does; return those accepted."""
    many = len(batch.jobs)
    moved: MoveResult
    [moved] = await stage.run(
        jobs.quarantine(batch.worker, [batch.id] * many, batch.jobs, ['{"type": "E"}'] * many), on
    )
    return moved


async def finish_as_lost(
    stage: Stage, batch: Batch, state: str = "failed", on: Connection | None = None
) -> MoveResult:
    """Finish the jobs of a batch as lost, as the engine does; return those accepted."""
    many = len(batch.jobs)
    moved: MoveResult
    [moved] = await stage.run(
        jobs.finish_lost(
            batch.worker, [batch.id] * many, batch.jobs, [state] * many, ["{}"] * many
        ),
        on,
    )
    return moved


async def split(
    stage: Stage,
    batch: Batch,
    job: int,
    seconds: float | None = None,
    on: Connection | None = None,
) -> Batch:
    """Move a job of a batch to its own claim, as the engine does. The claim's id is 0 if there is none."""
    _, _, found = await stage.together(
        claims.lock(batch.worker, [batch.id]),
        claims.split(batch.worker, batch.id, job, uuid4(), seconds),
        claims.by_job(batch.worker, job),
        on=on,
    )
    members: list[ClaimedJob] = [each for each in batch.members if each.job == job]
    return Batch(batch.worker, found[0] if found else 0, [job], members)


async def expire_claim(stage: Stage, claim: int) -> None:
    """Let a claim expire."""
    await stage.sql(
        "update rota.claims set expires = rota.clock() - interval '1 s' where id = %s", claim
    )


async def deadlocks(stage: Stage) -> int:
    """Return the number of deadlocks in this database; sessions must be closed, or have flushed
    statistics."""
    found: int = await stage.one(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    return found

"""Queries for claims: lock and split them, and take back those of dead workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.store.array_literals import int_array
from rota.store.jobs import MoveResult
from rota.store.query import Query

CLAIM_WRITES = {
    "job/claim": "puts queued jobs into a new claim",
    "job/claim_suspects": "puts each suspect into its own new claim",
    "claim/split": "moves one job into its own claim, with or without a visibility timeout",
    "claim/mark_running": "notes that a suspect runs alone; moves no job",
    "job/complete": "removes succeeded jobs",
    "rota.remove_from_claims": "removes jobs with any other outcome, and jobs of lost workers",
}
"""Statements and functions that write `claims`: all of them. A new one must respect fence and pauses."""


class HeldClaim(msgspec.Struct, frozen=True):
    id: int
    nonce: UUID
    jobs: list[int]


class OrphanedClaim(msgspec.Struct, frozen=True):
    """Claim of a worker that is gone, or past its visibility timeout."""

    id: int
    worker: int
    jobs: list[int]


def lock(worker: int, claims: Sequence[int]) -> Query[int]:
    """Lock claims, so that later statements of the transaction read their state as of the lock."""
    return Query("claim/lock", {"worker": worker, "claims": int_array(claims)}, int)


def lock_shared(worker: int, claim: int, job: int) -> Query[int]:
    """Lock a claim that holds a job, so that it does not change until the transaction ends."""
    return Query("claim/lock_shared", {"worker": worker, "claim": claim, "job": job}, int)


def assert_held(claim: int, job: int) -> Query[Any]:
    """Raise ClaimLost if the claim no longer holds the job, which aborts the transaction."""
    return Query("claim/assert_held", {"claim": claim, "job": job}, lambda _: None)


def terminate_backend(pid: int, transaction_started: datetime) -> Query[Any]:
    """Terminate the backend of a transaction with a lost connection, if that transaction is still open."""
    return Query(
        "claim/terminate_backend",
        {"pid": pid, "transaction_started": transaction_started},
        lambda _: None,
    )


def by_worker(worker: int) -> Query[HeldClaim]:
    return Query("claim/by_worker", {"worker": worker}, HeldClaim)


def split(
    worker: int, claim: int, job: int, nonce: UUID, seconds: float | None = None
) -> Query[None]:
    """Move a job to a new claim, which expires after `seconds` if given. The old claim must be locked."""
    params = {"worker": worker, "claim": claim, "job": job, "nonce": nonce, "seconds": seconds}
    return Query("claim/split", params, lambda: None)


def mark_running(worker: int, claim: int, job: int, *, exclusive: bool) -> Query[int]:
    """Record that a suspect runs, and whether exclusively. No row if the claim no longer holds the job."""
    return Query(
        "claim/mark_running",
        {"worker": worker, "claim": claim, "job": job, "exclusive": exclusive},
        int,
    )


def by_job(worker: int, job: int) -> Query[int]:
    """Return the claim that holds a job."""
    return Query("claim/by_job", {"worker": worker, "job": job}, int)


def orphans(after: int, limit: int) -> Query[OrphanedClaim]:
    """Return claims of workers that are gone, or past their visibility timeout, in the order of ids."""
    return Query("claim/orphans", {"after": after, "limit": limit}, OrphanedClaim)


def reap(claim: int, only_jobs: Sequence[int] | None = None) -> Query[MoveResult]:
    """Take back the jobs of an orphaned claim, or only those in `only_jobs`."""
    params = {"claim": claim, "only_jobs": None if only_jobs is None else int_array(only_jobs)}
    return Query("claim/reap", params, MoveResult)

"""Queries for claims: lock and split them, and take back those of dead workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from rota.store.array_literals import int_array
from rota.store.jobs import MoveResult
from rota.store.query import Query, no_row, statement

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


@statement("claim/lock_shared", int)
def lock_shared(worker: int, claim: int, job: int) -> None:
    """Lock a claim that holds a job, so that it does not change until the transaction ends."""


@statement("claim/assert_held", no_row)
def assert_held(claim: int, job: int) -> None:
    """Raise ClaimLost if the claim no longer holds the job, which aborts the transaction."""


@statement("claim/terminate_backend", no_row)
def terminate_backend(pid: int, transaction_started: datetime) -> None:
    """Terminate the backend of a transaction with a lost connection, if that transaction is still open."""


@statement("claim/by_worker", HeldClaim)
def by_worker(worker: int) -> None: ...


@statement("claim/split", no_row)
def split(worker: int, claim: int, job: int, nonce: UUID, seconds: float | None = None) -> None:
    """Move a job to a new claim, which expires after `seconds` if given. The old claim must be locked."""


@statement("claim/mark_running", int)
def mark_running(worker: int, claim: int, job: int, *, exclusive: bool) -> None:
    """Record that a suspect runs, and whether exclusively. No row if the claim no longer holds the job."""


@statement("claim/by_job", int)
def by_job(worker: int, job: int) -> None:
    """Return the claim that holds a job."""


@statement("claim/orphans", OrphanedClaim)
def orphans(after: int, limit: int) -> None:
    """Return claims of workers that are gone, or past their visibility timeout, in the order of ids."""


def reap(claim: int, only_jobs: Sequence[int] | None = None) -> Query[MoveResult]:
    """Take back the jobs of an orphaned claim, or only those in `only_jobs`."""
    params = {"claim": claim, "only_jobs": None if only_jobs is None else int_array(only_jobs)}
    return Query("claim/reap", params, MoveResult)

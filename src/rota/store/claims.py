"""Claims: the batches a worker holds, letting go of them, and taking them from whoever is gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.store.array_literals import int_array
from rota.store.jobs import MoveResult
from rota.store.query import Query


class HeldClaim(msgspec.Struct, frozen=True):
    id: int
    nonce: UUID
    jobs: list[int]


class OrphanedClaim(msgspec.Struct, frozen=True):
    """A claim nobody looks after."""

    id: int
    worker: int
    jobs: list[int]


def lock(worker: int, claims: Sequence[int]) -> Query[int]:
    """Lock claims before a move that takes finished jobs out of them."""
    return Query("claim/hold", {"worker": worker, "claims": int_array(claims)}, int)


def lock_exclusive(worker: int, claims: Sequence[int]) -> Query[int]:
    """Lock claims before a move that takes unfinished jobs out of them."""
    return Query("claim/seize", {"worker": worker, "claims": int_array(claims)}, int)


def lock_shared(worker: int, claim: int, job: int) -> Query[int]:
    """Keep a claim that holds a job as it is until the transaction ends."""
    return Query("claim/pin", {"worker": worker, "claim": claim, "job": job}, int)


def assert_held(claim: int, job: int) -> Query[Any]:
    """Refuse the rest of the transaction if a claim does not hold a job any more: ClaimLost."""
    return Query("claim/assert", {"claim": claim, "job": job}, lambda _: None)


def terminate_backend(pid: int, transaction_started: datetime) -> Query[Any]:
    """End a transaction of ours that nobody can end any more."""
    return Query("claim/exorcise", {"pid": pid, "began": transaction_started}, lambda _: None)


def release(worker: int, claims: Sequence[int], jobs: Sequence[int]) -> Query[None]:
    """Take jobs out of claims that are held or seized; an empty claim goes."""
    params = {"worker": worker, "claims": int_array(claims), "jobs": int_array(jobs)}
    return Query("claim/release", params, lambda: None)


def by_worker(worker: int) -> Query[HeldClaim]:
    return Query("claim/mine", {"worker": worker}, HeldClaim)


def split(
    worker: int, claim: int, job: int, nonce: UUID, seconds: float | None = None
) -> Query[None]:
    """Give a job a claim of its own, which with `seconds` runs out by time; the claim is held."""
    params = {"worker": worker, "claim": claim, "job": job, "nonce": nonce, "seconds": seconds}
    return Query("claim/split", params, lambda: None)


def mark_running(worker: int, claim: int, job: int, *, exclusive: bool) -> Query[int]:
    """Note of a suspect that it runs, and whether alone. No row: it has been taken away."""
    return Query(
        "claim/mark", {"worker": worker, "claim": claim, "job": job, "alone": exclusive}, int
    )


def by_job(worker: int, job: int) -> Query[int]:
    """The claim that holds a job."""
    return Query("claim/of", {"worker": worker, "job": job}, int)


def orphans(after: int, limit: int) -> Query[OrphanedClaim]:
    """Claims whose worker is gone, or whose time has run out, going up from an id."""
    return Query("claim/orphans", {"after": after, "limit": limit}, OrphanedClaim)


def reap(claim: int, only_jobs: Sequence[int] | None = None) -> Query[MoveResult]:
    """Take back what such a claim holds."""
    params = {"claim": claim, "only": None if only_jobs is None else int_array(only_jobs)}
    return Query("claim/reap", params, MoveResult)

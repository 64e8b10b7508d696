"""Claims: the batches a worker holds, letting go of them, and taking them from whoever is gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.store.arrays import of_ints
from rota.store.jobs import Moved
from rota.store.query import Query


class Held(msgspec.Struct, frozen=True):
    id: int
    nonce: UUID
    jobs: list[int]


class Orphan(msgspec.Struct, frozen=True):
    """A claim nobody looks after."""

    id: int
    worker: int
    jobs: list[int]


def hold(worker: int, claims: Sequence[int]) -> Query[int]:
    """Lock claims before a move that takes finished jobs out of them."""
    return Query("claim/hold", {"worker": worker, "claims": of_ints(claims)}, int)


def seize(worker: int, claims: Sequence[int]) -> Query[int]:
    """Lock claims before a move that takes unfinished jobs out of them."""
    return Query("claim/seize", {"worker": worker, "claims": of_ints(claims)}, int)


def pin(worker: int, claim: int, job: int) -> Query[int]:
    """Keep a claim that holds a job as it is until the transaction ends."""
    return Query("claim/pin", {"worker": worker, "claim": claim, "job": job}, int)


def assert_held(claim: int, job: int) -> Query[Any]:
    """Refuse the rest of the transaction if a claim does not hold a job any more: ClaimLost."""
    return Query("claim/assert", {"claim": claim, "job": job}, lambda _: None)


def exorcise(pid: int, began: datetime) -> Query[Any]:
    """End a transaction of ours that nobody can end any more."""
    return Query("claim/exorcise", {"pid": pid, "began": began}, lambda _: None)


def release(worker: int, claims: Sequence[int], jobs: Sequence[int]) -> Query[None]:
    """Take jobs out of claims that are held or seized; an empty claim goes."""
    params = {"worker": worker, "claims": of_ints(claims), "jobs": of_ints(jobs)}
    return Query("claim/release", params, lambda: None)


def mine(worker: int) -> Query[Held]:
    return Query("claim/mine", {"worker": worker}, Held)


def split(
    worker: int, claim: int, job: int, nonce: UUID, seconds: float | None = None
) -> Query[None]:
    """Give a job a claim of its own, which with `seconds` runs out by time; the claim is held."""
    params = {"worker": worker, "claim": claim, "job": job, "nonce": nonce, "seconds": seconds}
    return Query("claim/split", params, lambda: None)


def mark(worker: int, claim: int, job: int, *, alone: bool) -> Query[int]:
    """Note of a suspect that it runs, and whether alone. No row: it has been taken away."""
    return Query("claim/mark", {"worker": worker, "claim": claim, "job": job, "alone": alone}, int)


def of(worker: int, job: int) -> Query[int]:
    """The claim that holds a job."""
    return Query("claim/of", {"worker": worker, "job": job}, int)


def orphans(after: int, limit: int) -> Query[Orphan]:
    """Claims whose worker is gone, or whose time has run out, going up from an id."""
    return Query("claim/orphans", {"after": after, "limit": limit}, Orphan)


def reap(claim: int, only: Sequence[int] | None = None) -> Query[Moved]:
    """Take back what such a claim holds."""
    params = {"claim": claim, "only": None if only is None else of_ints(only)}
    return Query("claim/reap", params, Moved)

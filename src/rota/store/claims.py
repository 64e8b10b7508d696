"""Claims: the batches a worker holds, and letting go of them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from rota.store.arrays import of_ints
from rota.store.query import Query


class Held(msgspec.Struct, frozen=True):
    id: int
    nonce: UUID
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


def release(worker: int, claims: Sequence[int], jobs: Sequence[int]) -> Query[None]:
    """Take jobs out of claims that are held or seized; an empty claim goes."""
    params = {"worker": worker, "claims": of_ints(claims), "jobs": of_ints(jobs)}
    return Query("claim/release", params, lambda: None)


def mine(worker: int) -> Query[Held]:
    return Query("claim/mine", {"worker": worker}, Held)

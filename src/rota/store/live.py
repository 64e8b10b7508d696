"""What is so at this very moment: read-only questions of views that look again and again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.store.query import Query


class HeldLine(msgspec.Struct, frozen=True):
    worker: int
    task: str
    jobs: int


class PlaceLine(msgspec.Struct, frozen=True):
    state: str
    worker: int | None
    """Who holds them, or had them last."""
    jobs: int


class SumLine(msgspec.Struct, frozen=True):
    state: str
    jobs: int
    retries: int


class DepthLine(msgspec.Struct, frozen=True):
    queue: str
    ready: int
    exact: bool
    oldest: float | None


class PaceLine(msgspec.Struct, frozen=True):
    """What ended in one queue in one minute."""

    queue: str
    minute: int
    """Its beginning, in seconds since 1970."""
    ended: int
    failed: int
    retried: int
    waits: int
    waited: float


def held() -> Query[HeldLine]:
    return Query("live/held", {}, HeldLine)


def ended(jobs: Sequence[int]) -> Query[int]:
    return Query("live/ended", {"jobs": list(jobs)}, int)


def whereabouts(jobs: Sequence[int]) -> Query[PlaceLine]:
    return Query("live/whereabouts", {"jobs": list(jobs)}, PlaceLine)


def sums() -> Query[SumLine]:
    """For small databases."""
    return Query("live/sums", {}, SumLine)


def depths() -> Query[DepthLine]:
    return Query("live/depths", {}, DepthLine)


def pace(minutes: int = 2) -> Query[PaceLine]:
    """Of this minute and so many before it."""
    return Query("live/pace", {"minutes": minutes}, PaceLine)

"""What was counted, and how it stands with all of it: for those who watch and those who scale."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.store.query import Query

LATE = 1800.0
"""Seconds after which nothing more is told of a minute."""

FOLD_AFTER = 3600.0
"""Seconds after which a minute is folded: nothing can come any more."""

KEEP_FOR = 7 * 24 * 3600.0

SOME = 5000
"""Rows folded or removed in one statement."""


class Tally(msgspec.Struct, frozen=True):
    """What a worker has counted of one minute, of one queue and task."""

    minute: int
    """Since 1970."""
    queue: str
    task: str
    claimed: int
    given_back: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int
    skipped: int
    quarantined: int
    retried: int
    slept: int
    attempts: int
    took: float
    longest: float
    waits: int
    waited: float
    longest_wait: float


class Fleet(msgspec.Struct, frozen=True):
    held: int
    asleep: int
    quarantined: int
    workers: dict[str, int]
    running: int
    concurrency: int
    leaders: dict[str, int]
    """The number of each one's term."""
    overdue: float | None
    """Seconds by which the first schedule is late; None: there is none."""
    notify: float
    alerts: dict[str, int]
    paused: list[str] = []
    """Queues from which nothing is claimed."""


class InstanceLine(msgspec.Struct, frozen=True):
    """One that stands by for services."""

    host: str
    pid: int
    version: str
    started: datetime
    seen: datetime
    services: list[str]
    running: list[str]


class Scaled(msgspec.Struct, frozen=True):
    """How many workers a queue wants, and by what figures."""

    queue: str
    wanted: int
    workers: int
    """Those that are there."""
    backlog: int
    oldest: float
    running: float
    arrivals: float
    """Jobs a second."""
    service: float | None
    """Seconds an attempt takes; None: nobody knows yet."""
    places: float
    """Jobs at once on one worker."""


def flush(worker: int, tallies: Sequence[Tally]) -> Query[Any]:
    """Can be repeated: of what is told twice the larger stands."""
    columns: dict[str, Any] = {
        name: [getattr(each, name) for each in tallies] for name in Tally.__struct_fields__
    }
    return Query("meter/flush", {**columns, "worker": worker, "late": LATE}, lambda: None)


def sample(worker: int) -> Query[Any]:
    """Does nothing unless it is this worker's turn."""
    return Query("meter/sample", {"worker": worker}, lambda: None)


def fold(age: float = FOLD_AFTER, most: int = SOME) -> Query[int]:
    return Query("meter/fold", {"age": age, "most": most}, int)


def forget(age: float = KEEP_FOR, most: int = SOME) -> Query[int]:
    return Query("meter/forget", {"age": age, "most": most}, int)


def bound(seconds: float) -> Query[Any]:
    return Query("meter/bound", {"within": f"{int(seconds * 1000)}ms"}, lambda within: None)


def fleet(dead_after: float) -> Query[Fleet]:
    return Query("meter/fleet", {"dead_after": dead_after}, _fleet)


def instances() -> Query[InstanceLine]:
    return Query("meter/instances", {}, InstanceLine)


def autoscale(
    target: float,
    fewest: int,
    most: int,
    concurrency: int | None = None,
    queue: str | None = None,
) -> Query[Scaled]:
    params = {
        "target": target,
        "fewest": fewest,
        "most": most,
        "concurrency": concurrency,
        "queue": queue,
    }
    return Query("meter/autoscale", params, Scaled)


def _fleet(document: str) -> Fleet:
    return msgspec.json.decode(document, type=Fleet)

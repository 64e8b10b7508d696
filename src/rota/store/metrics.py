"""What was counted, and how it stands with all of it: for those who watch and those who scale."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.store.query import Query

MAX_LATE_SECONDS = 1800.0
"""Seconds after which nothing more is told of a minute."""

COMPACT_AFTER_SECONDS = 3600.0
"""Seconds after which a minute is folded: nothing can come any more."""

RETENTION_SECONDS = 7 * 24 * 3600.0

BATCH_ROWS = 5000
"""Rows folded or removed in one statement."""


class MinuteTotals(msgspec.Struct, frozen=True):
    """What a worker has counted of one minute, of one queue and task."""

    minute: int
    """Since 1970."""
    queue: str
    task: str
    claimed: int
    returned: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int
    skipped: int
    quarantined: int
    retried: int
    suspended: int
    attempts: int
    seconds: float
    max_seconds: float
    wait_count: int
    wait_seconds: float
    max_wait_seconds: float


class FleetTotals(msgspec.Struct, frozen=True):
    held: int
    sleeping: int
    quarantined: int
    workers: dict[str, int]
    running: int
    concurrency: int
    leaders: dict[str, int]
    """The number of each one's term."""
    schedule_late_seconds: float | None
    """Seconds by which the first schedule is late; None: there is none."""
    notify_queue_usage: float
    alerts: dict[str, int]
    paused_queues: list[str] = []
    """Queues from which nothing is claimed."""


class ServiceInstanceRow(msgspec.Struct, frozen=True):
    """One that stands by for services."""

    host: str
    pid: int
    version: str
    started: datetime
    last_seen: datetime
    services: list[str]
    running: list[str]


class DesiredWorkersRow(msgspec.Struct, frozen=True):
    """How many workers a queue wants, and by what figures."""

    queue: str
    desired: int
    workers: int
    """Those that are there."""
    backlog: int
    oldest: float
    running: float
    arrival_rate: float
    """Jobs a second."""
    mean_seconds: float | None
    """Seconds an attempt takes; None: nobody knows yet."""
    slots: float
    """Jobs at once on one worker."""


def write_minutes(worker: int, totals: Sequence[MinuteTotals]) -> Query[Any]:
    """Can be repeated: of what is told twice the larger stands."""
    columns: dict[str, Any] = {
        name: [getattr(each, name) for each in totals] for name in MinuteTotals.__struct_fields__
    }
    return Query(
        "meter/flush", {**columns, "worker": worker, "late": MAX_LATE_SECONDS}, lambda: None
    )


def sample_queues(worker: int) -> Query[Any]:
    """Does nothing unless it is this worker's turn."""
    return Query("meter/sample", {"worker": worker}, lambda: None)


def compact(age: float = COMPACT_AFTER_SECONDS, limit: int = BATCH_ROWS) -> Query[int]:
    return Query("meter/fold", {"age": age, "most": limit}, int)


def delete_old(age: float = RETENTION_SECONDS, limit: int = BATCH_ROWS) -> Query[int]:
    return Query("meter/forget", {"age": age, "most": limit}, int)


def set_timeout(seconds: float) -> Query[Any]:
    return Query("meter/bound", {"within": f"{int(seconds * 1000)}ms"}, lambda within: None)


def fleet_totals(dead_after: float) -> Query[FleetTotals]:
    return Query("meter/fleet", {"dead_after": dead_after}, _read_fleet)


def service_instances() -> Query[ServiceInstanceRow]:
    return Query("meter/instances", {}, ServiceInstanceRow)


def desired_workers(
    target: float,
    min_workers: int,
    max_workers: int,
    concurrency: int | None = None,
    queue: str | None = None,
) -> Query[DesiredWorkersRow]:
    params = {
        "target": target,
        "fewest": min_workers,
        "most": max_workers,
        "concurrency": concurrency,
        "queue": queue,
    }
    return Query("meter/autoscale", params, DesiredWorkersRow)


def _read_fleet(document: str) -> FleetTotals:
    return msgspec.json.decode(document, type=FleetTotals)

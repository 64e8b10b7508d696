"""Metrics: counts per minute, totals of the fleet and desired workers, for monitoring and autoscaling."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.store.query import Query, no_row, statement

MAX_LATE_SECONDS = 1800.0
"""Age after which counts of a minute are no longer accepted."""

COMPACT_AFTER_SECONDS = 3600.0
"""Age after which a minute is compacted: no more counts can arrive for it."""

RETENTION_SECONDS = 7 * 24 * 3600.0

BATCH_ROWS = 5000
"""Rows compacted or removed in one statement."""


class MinuteTotals(msgspec.Struct, frozen=True):
    """Counts of one worker for one minute, queue and task."""

    minute: int
    """Minutes since 1970."""
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
    """Name → term."""
    schedule_late_seconds: float | None
    """Seconds by which the earliest schedule is late; None if there is no schedule."""
    notify_queue_usage: float
    alerts: dict[str, int]
    paused_queues: list[str] = []


class ServiceInstanceRow(msgspec.Struct, frozen=True):
    """Instance that runs services or is a candidate for them."""

    host: str
    pid: int
    version: str
    started: datetime
    last_seen: datetime
    services: list[str]
    running: list[str]


class DesiredWorkersRow(msgspec.Struct, frozen=True):
    """Number of workers that a queue needs, with the figures it was computed from."""

    queue: str
    desired: int
    workers: Annotated[int, Meta(description="Workers that serve the queue now.")]
    backlog: int
    oldest: Annotated[float, Meta(description="Seconds that the oldest job has been queued.")]
    running: float
    arrival_rate: Annotated[float, Meta(description="Jobs per second.")]
    mean_seconds: Annotated[float, Meta(description="Mean duration of an attempt.")] | None
    slots: Annotated[float, Meta(description="Concurrency of one worker.")]


def write_minutes(worker: int, totals: Sequence[MinuteTotals]) -> Query[Any]:
    """Write counts. Repeatable: for each count the larger value is kept."""
    columns: dict[str, Any] = {
        name: [getattr(each, name) for each in totals] for name in MinuteTotals.__struct_fields__
    }
    return Query(
        "metric/write_minutes",
        {**columns, "worker": worker, "max_late_seconds": MAX_LATE_SECONDS},
        no_row,
    )


@statement("metric/sample_queues", no_row)
def sample_queues(worker: int) -> None:
    """Record the queue depths. Has an effect only for the worker that is registered longest."""


@statement("metric/compact", int)
def compact(age: float = COMPACT_AFTER_SECONDS, limit: int = BATCH_ROWS) -> None: ...


@statement("metric/delete_old", int)
def delete_old(age: float = RETENTION_SECONDS, limit: int = BATCH_ROWS) -> None: ...


def set_timeout(seconds: float) -> Query[Any]:
    return Query("metric/set_timeout", {"timeout": f"{int(seconds * 1000)}ms"}, no_row)


def fleet_totals(dead_after: float) -> Query[FleetTotals]:
    return Query("metric/fleet_totals", {"dead_after": dead_after}, _read_fleet)


@statement("metric/service_instances", ServiceInstanceRow)
def service_instances() -> None: ...


@statement("metric/desired_workers", DesiredWorkersRow)
def desired_workers(
    target: float,
    min_workers: int,
    max_workers: int,
    concurrency: int | None = None,
    queue: str | None = None,
) -> None: ...


def _read_fleet(document: str) -> FleetTotals:
    return msgspec.json.decode(document, type=FleetTotals)

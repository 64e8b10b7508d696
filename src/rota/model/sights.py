"""What is seen of the fleet in one look, as far as the rules are about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

MAX_COUNTED = 1000
"""Nothing is counted further than this."""


@dataclass(frozen=True, slots=True)
class QueueHead:
    """The job that is first in a queue's lane."""

    queue: str
    priority: int
    seq: int
    job: int
    task: str
    age: float | None
    """For how many seconds it has been ready at least, as far as the rows tell."""
    serving_workers: int
    """Workers that are there and serve its queue."""
    eligible_workers: int
    """Of these, how many know its task; and how busy they are."""
    running: int
    capacity: int
    paused: bool = False

    @property
    def lane_key(self) -> str:
        return f"{self.priority} {self.queue}"


@dataclass(frozen=True, slots=True)
class DeadWorker:
    worker: int
    host: str
    pid: int
    queues: list[str]
    last_beat: datetime
    """The last that was heard of it."""


@dataclass(frozen=True, slots=True)
class LiveWorker:
    queues: list[str]
    started: datetime


@dataclass(frozen=True, slots=True)
class LateSchedule:
    schedule: str
    target: str
    late_seconds: float
    has_worker: bool
    """Whether a worker that is there knows its target."""
    reason: str | None


@dataclass(frozen=True, slots=True)
class FailingSchedule:
    schedule: str
    failures: int
    paused: bool
    run: int | None


@dataclass(frozen=True, slots=True)
class QuarantinedJobs:
    queue: str
    jobs: int
    job: int
    task: str


@dataclass(frozen=True, slots=True)
class RefusedOutcomes:
    host: str
    jobs: int


@dataclass(frozen=True, slots=True)
class ServerLoad:
    snapshot_age: float | None
    """For how many seconds the oldest transaction is open that keeps rows from being removed, and whose."""
    pid: int | None
    application: str | None
    state: str | None
    notify_usage: float
    """How full the queue of notifications is, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    now: datetime
    heads: Sequence[QueueHead] = ()
    dead: Sequence[DeadWorker] = ()
    alive: Sequence[LiveWorker] = ()
    late: Sequence[LateSchedule] = ()
    failing: Sequence[FailingSchedule] = ()
    quarantined: Sequence[QuarantinedJobs] = ()
    refused: Sequence[RefusedOutcomes] = ()
    server: Sequence[ServerLoad] = ()

"""Events of the engine, which logs, metrics and tests observe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Event that has happened, according to the database."""


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """A worker has registered and claims jobs."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerStopped(Event):
    """A worker has stopped in an orderly way."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerDied(Event):
    """Another worker was found dead. Its jobs are taken back."""

    worker: int
    dead_worker: int


@dataclass(frozen=True, slots=True)
class WorkerReregistered(Event):
    """A worker that had been declared dead registered again under a new number."""

    worker: int
    previous_worker: int


@dataclass(frozen=True, slots=True)
class WorkerDraining(Event):
    """The worker claims no more jobs and is about to stop."""

    worker: int


@dataclass(frozen=True, slots=True)
class JobsReaped(Event):
    """Jobs of a dead worker were taken back."""

    worker: int
    dead_worker: int
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobQuarantined(Event):
    """Workers were lost with the job too often; it waits for an operator to release it."""

    worker: int
    job: int
    task: str


@dataclass(frozen=True, slots=True)
class JobClaimed(Event):
    """A worker has claimed the job."""

    worker: int
    job: int
    task: str
    attempt: int


@dataclass(frozen=True, slots=True)
class JobFinished(Event):
    """The final outcome of a job is recorded: succeeded, failed, cancelled, expired or skipped."""

    worker: int
    job: int
    task: str
    attempt: int
    state: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The run of a flow, or of a job's child calls, ended with the last of its jobs."""

    worker: int
    run: int


@dataclass(frozen=True, slots=True)
class JobRetried(Event):
    """An attempt failed; the next one follows after `delay` seconds."""

    worker: int
    job: int
    task: str
    attempt: int
    delay: float


@dataclass(frozen=True, slots=True)
class JobReturned(Event):
    """The job returned to its queue unfinished; the attempt is not counted."""

    worker: int
    job: int
    task: str


@dataclass(frozen=True, slots=True)
class JobSuspended(Event):
    """The job has left its worker and waits for a time or a signal."""

    worker: int
    job: int
    task: str


@dataclass(frozen=True, slots=True)
class OutcomeRefused(Event):
    """The worker no longer held the job, so its outcome was not recorded."""

    worker: int
    job: int


@dataclass(frozen=True, slots=True)
class LockAcquired(Event):
    """This instance has acquired a lock, or a permit of a semaphore."""

    name: str
    token: int


@dataclass(frozen=True, slots=True)
class LockReleased(Event):
    """This instance has released a lock, or a permit of a semaphore."""

    name: str
    token: int


@dataclass(frozen=True, slots=True)
class LockForfeited(Event):
    """This instance lost a lock or permit that it still used."""

    name: str
    token: int
    reason: str


@dataclass(frozen=True, slots=True)
class LeaderElected(Event):
    """This instance has become the leader for the name."""

    name: str
    term: int


@dataclass(frozen=True, slots=True)
class LeadershipEnded(Event):
    """This instance no longer leads; `reason` is empty if it resigned."""

    name: str
    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class ServicesStarted(Event):
    """This instance is a candidate for these services."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServiceRan(Event):
    """An iteration of a service ended on this instance: succeeded, failed, stopped or lost."""

    name: str
    iteration: int
    outcome: str


@dataclass(frozen=True, slots=True)
class ScheduleTicked(Event):
    """A schedule has started a run for one of its ticks."""

    worker: int
    schedule: str
    tick: str
    run: int


@dataclass(frozen=True, slots=True)
class AlertRaised(Event):
    """A condition that needs attention was found."""

    kind: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class AlertCleared(Event):
    """The condition no longer holds, or an operator closed the alert."""

    kind: str
    subject: str

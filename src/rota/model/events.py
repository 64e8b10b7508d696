"""What the engine announces: the one mechanism that logs, metrics and tests observe it by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened, as far as the database knows."""


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """A worker is there, and takes jobs."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerStopped(Event):
    """A worker has left in order."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerDied(Event):
    """Another worker was found dead. What it held goes back."""

    worker: int
    dead_worker: int


@dataclass(frozen=True, slots=True)
class WorkerReregistered(Event):
    """The worker had been declared dead, and goes on under another number."""

    worker: int
    previous_worker: int


@dataclass(frozen=True, slots=True)
class WorkerDraining(Event):
    """The worker takes nothing more and is about to leave."""

    worker: int


@dataclass(frozen=True, slots=True)
class JobsReaped(Event):
    """Jobs that a dead worker held went back."""

    worker: int
    dead_worker: int
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobQuarantined(Event):
    """Workers died of the job too often: it waits for somebody to release it."""

    worker: int
    job: int
    task: str


@dataclass(frozen=True, slots=True)
class JobClaimed(Event):
    """A worker holds the job, and will run it."""

    worker: int
    job: int
    task: str
    attempt: int


@dataclass(frozen=True, slots=True)
class JobFinished(Event):
    """An outcome is recorded: succeeded, failed, cancelled, expired or skipped."""

    worker: int
    job: int
    task: str
    attempt: int
    state: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """A run of a flow, or of a job's calls, ended with the last of its jobs."""

    worker: int
    run: int


@dataclass(frozen=True, slots=True)
class JobRetried(Event):
    """An attempt failed; the next one comes after `delay` seconds."""

    worker: int
    job: int
    task: str
    attempt: int
    delay: float


@dataclass(frozen=True, slots=True)
class JobReturned(Event):
    """The job went back unfinished, its attempt uncounted."""

    worker: int
    job: int
    task: str


@dataclass(frozen=True, slots=True)
class JobSuspended(Event):
    """The job has left its worker, and waits for a time or a signal."""

    worker: int
    job: int
    task: str


@dataclass(frozen=True, slots=True)
class OutcomeRefused(Event):
    """The worker no longer held the job: what it did counts for nothing."""

    worker: int
    job: int


@dataclass(frozen=True, slots=True)
class LockAcquired(Event):
    """A lock, or a permit of a semaphore, is held by this instance."""

    name: str
    token: int


@dataclass(frozen=True, slots=True)
class LockReleased(Event):
    """A lock, or a permit of a semaphore, was given back."""

    name: str
    token: int


@dataclass(frozen=True, slots=True)
class LockForfeited(Event):
    """The lock or permit was lost while this instance relied on it."""

    name: str
    token: int
    reason: str


@dataclass(frozen=True, slots=True)
class LeaderElected(Event):
    """This instance leads under the name, from now on."""

    name: str
    term: int


@dataclass(frozen=True, slots=True)
class LeadershipEnded(Event):
    """This instance no longer leads; `why` is empty if it has resigned."""

    name: str
    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class ServicesStarted(Event):
    """This instance stands by for these services."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServiceRan(Event):
    """An iteration of a service ended here: succeeded, failed, stopped or lost."""

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
    """Something is so that somebody should look at."""

    kind: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class AlertCleared(Event):
    """It is no longer so, or somebody has closed it."""

    kind: str
    subject: str

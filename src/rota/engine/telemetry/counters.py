"""What one program's workers count: plain numbers, added to by the batch wherever there is one.

Every life of a worker counts by itself, for the database wants to know who counted what; the program keeps
the sum, over lives that have ended and those that go on. Nobody locks: who reads may be a batch behind.

What is counted is what the database has said: a job counts as finished when its outcome was accepted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from rota.model.histogram import SIZE_BOUNDS, Histogram

if TYPE_CHECKING:
    from rota.engine.worker.slots import OutcomeBatch
    from rota.store.jobs import ClaimedJob

QueueTask = tuple[str, str]
"""A queue and a task."""

MAX_QUEUE_TASKS = 100
"""Beyond so many, places are counted together."""

OTHER: QueueTask = ("other", "other")

OUTCOMES = ("succeeded", "failed", "cancelled", "expired", "skipped", "quarantined")
COUNTS = ("claimed", "returned", *OUTCOMES, "retried", "suspended")


class TaskCounters:
    """What became of the jobs of one place."""

    __slots__ = (*COUNTS, "durations", "wait_times")

    def __init__(self) -> None:
        self.claimed = self.returned = 0
        self.succeeded = self.failed = self.cancelled = 0
        self.expired = self.skipped = self.quarantined = 0
        self.retried = self.suspended = 0
        self.durations = Histogram()
        """Of every stretch of code that ran and came to an end, also to sleep or to be tried again."""
        self.wait_times = Histogram()
        """Of jobs that were ready from the start, until they were claimed."""

    def merge(self, other: TaskCounters) -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.durations.merge(other.durations)
        self.wait_times.merge(other.wait_times)


class Counters:
    """Of one life of a worker, or the sum of several."""

    def __init__(self) -> None:
        self.by_task: dict[QueueTask, TaskCounters] = {}
        self.started: defaultdict[str, int] = defaultdict(int)
        """Attempts whose code began, by task."""
        self.claims_with_jobs = self.empty_claims = 0
        """Claims that brought jobs, and that brought none."""
        self.claim_sizes = Histogram(SIZE_BOUNDS)
        self.round_trips = Histogram()
        self.reaped = self.declared_dead = self.refused = 0
        self.lateness = Histogram()
        """Of runs that schedules have started."""

    def task_counters(self, queue: str, task: str) -> TaskCounters:
        found = self.by_task.get((queue, task))
        if found is None:
            queue_task = (queue, task) if len(self.by_task) < MAX_QUEUE_TASKS else OTHER
            found = self.by_task.setdefault(queue_task, TaskCounters())
        return found

    def count_claim(self, jobs: Sequence[ClaimedJob]) -> None:
        """A claim was answered."""
        if not jobs:
            self.empty_claims += 1
            return
        self.claims_with_jobs += 1
        self.claim_sizes.add(len(jobs))
        for (queue, task), waited in _by_queue_task(jobs, [job.queued_seconds for job in jobs]):
            counters = self.task_counters(queue, task)
            counters.claimed += len(waited)
            if min(waited) < 0:  # nobody knows since when it was ready
                waited = [each for each in waited if each >= 0]
            counters.wait_times.add_all(waited)

    def count_outcomes(self, batch: OutcomeBatch, refused: Collection[int] = ()) -> None:
        """A batch was recorded, but for those of its jobs that were refused."""
        self.refused += len(refused)
        succeeded = batch.succeeded
        if succeeded and refused:
            succeeded = [each for each in succeeded if each[0].job not in refused]
        if succeeded:
            jobs, _, durations = zip(*succeeded, strict=True)
            for (queue, task), times in _by_queue_task(jobs, list(durations)):
                counters = self.task_counters(queue, task)
                counters.succeeded += len(times)
                counters.durations.add_all(times)
        for job, duration in batch.already_recorded:
            counters = self.task_counters(job.queue, job.task)
            counters.succeeded += 1
            counters.durations.add(duration)
        for job, outcome, seconds in batch.finished:
            if job.job not in refused:
                counters = self.task_counters(job.queue, job.task)
                setattr(counters, outcome.state, getattr(counters, outcome.state) + 1)
                if seconds:  # else it never began
                    counters.durations.add(seconds)
        for job, _, seconds in batch.retried:
            if job.job not in refused:
                counters = self.task_counters(job.queue, job.task)
                counters.retried += 1
                counters.durations.add(seconds)
        for job, rejected in batch.rejected:
            if job.job not in refused:
                counters = self.task_counters(job.queue, job.task)
                setattr(counters, rejected.state, getattr(counters, rejected.state) + 1)
        for job, _, seconds in (*batch.suspended, *batch.restarted):
            counters = self.task_counters(job.queue, job.task)
            counters.suspended += 1
            counters.durations.add(seconds)
        for job in batch.returned:
            self.task_counters(job.queue, job.task).returned += 1

    def merge(self, other: Counters) -> None:
        for (queue, task), counters in other.by_task.items():
            self.task_counters(queue, task).merge(counters)
        for task, count in other.started.items():
            known = task in self.started or len(self.started) < MAX_QUEUE_TASKS
            self.started[task if known else OTHER[1]] += count
        for name in ("claims_with_jobs", "empty_claims", "reaped", "declared_dead", "refused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("claim_sizes", "round_trips", "lateness"):
            getattr(self, name).merge(getattr(other, name))


def _by_queue_task(
    jobs: Sequence[ClaimedJob], values: list[float]
) -> Iterable[tuple[QueueTask, list[float]]]:
    """A value of each job, by where the jobs are. On the way of every job: most batches are of one place,
    and to find that out costs less than to sort them."""
    tasks = [job.task for job in jobs]
    queues = [job.queue for job in jobs]
    if tasks.count(tasks[0]) == queues.count(queues[0]) == len(jobs):
        return [((queues[0], tasks[0]), values)]
    groups: defaultdict[QueueTask, list[float]] = defaultdict(list)
    for queue_task, value in zip(zip(queues, tasks, strict=True), values, strict=True):
        groups[queue_task].append(value)
    return groups.items()


class ProcessCounters:
    """What a whole program has counted, since it began."""

    def __init__(self) -> None:
        self.enqueued: dict[QueueTask, int] = {}
        """Jobs that were started from here."""
        self._ended_sessions = Counters()
        self._open_sessions: list[Counters] = []

    def begin_session(self) -> Counters:
        """Count one more life."""
        counters = Counters()
        self._open_sessions.append(counters)
        return counters

    def end_session(self, counters: Counters) -> None:
        """It counts no more; what it has counted stays."""
        if counters in self._open_sessions:
            self._open_sessions.remove(counters)
            self._ended_sessions.merge(counters)

    def sum(self) -> Counters:
        answer = Counters()
        for each in (self._ended_sessions, *self._open_sessions):
            answer.merge(each)
        return answer

    def count_enqueued(self, queue_task: QueueTask, count: int = 1) -> None:
        if queue_task not in self.enqueued and len(self.enqueued) >= MAX_QUEUE_TASKS:
            queue_task = OTHER
        self.enqueued[queue_task] = self.enqueued.get(queue_task, 0) + count

"""What one program's workers count: plain numbers, added to by the batch wherever there is one.

Every life of a worker counts by itself, for the database wants to know who counted what; the program keeps
the sum, over lives that have ended and those that go on. Nobody locks: who reads may be a batch behind.

What is counted is what the database has said: a job counts as finished when its outcome was accepted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from rota.model.histogram import SIZES, Histogram

if TYPE_CHECKING:
    from rota.engine.desk import Batch
    from rota.store.jobs import Claimed

Place = tuple[str, str]
"""A queue and a task."""

MOST_PLACES = 100
"""Beyond so many, places are counted together."""

OTHER: Place = ("other", "other")

OUTCOMES = ("succeeded", "failed", "cancelled", "expired", "skipped", "quarantined")
COUNTS = ("claimed", "given_back", *OUTCOMES, "retried", "slept")


class Line:
    """What became of the jobs of one place."""

    __slots__ = (*COUNTS, "took", "waited")

    def __init__(self) -> None:
        self.claimed = self.given_back = 0
        self.succeeded = self.failed = self.cancelled = 0
        self.expired = self.skipped = self.quarantined = 0
        self.retried = self.slept = 0
        self.took = Histogram()
        """Of every stretch of code that ran and came to an end, also to sleep or to be tried again."""
        self.waited = Histogram()
        """Of jobs that were ready from the start, until they were claimed."""

    def merge(self, other: Line) -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.took.merge(other.took)
        self.waited.merge(other.waited)


class Meters:
    """Of one life of a worker, or the sum of several."""

    def __init__(self) -> None:
        self.lines: dict[Place, Line] = {}
        self.started: defaultdict[str, int] = defaultdict(int)
        """Attempts whose code began, by task."""
        self.found = self.empty = 0
        """Claims that brought jobs, and that brought none."""
        self.batches = Histogram(SIZES)
        self.exchanges = Histogram()
        self.reaped = self.declared_dead = self.refused = 0
        self.lateness = Histogram()
        """Of runs that schedules have started."""

    def line(self, queue: str, task: str) -> Line:
        found = self.lines.get((queue, task))
        if found is None:
            place = (queue, task) if len(self.lines) < MOST_PLACES else OTHER
            found = self.lines.setdefault(place, Line())
        return found

    def claimed(self, jobs: Sequence[Claimed]) -> None:
        """A claim was answered."""
        if not jobs:
            self.empty += 1
            return
        self.found += 1
        self.batches.add(len(jobs))
        for (queue, task), waited in _by_place(jobs, [job.waited for job in jobs]):
            line = self.line(queue, task)
            line.claimed += len(waited)
            if min(waited) < 0:  # nobody knows since when it was ready
                waited = [each for each in waited if each >= 0]
            line.waited.add_all(waited)

    def ended(self, batch: Batch, refused: Collection[int] = ()) -> None:
        """A batch was recorded, but for those of its jobs that were refused."""
        self.refused += len(refused)
        done = batch.done
        if done and refused:
            done = [each for each in done if each[0].job not in refused]
        if done:
            jobs, _, took = zip(*done, strict=True)
            for (queue, task), times in _by_place(jobs, list(took)):
                line = self.line(queue, task)
                line.succeeded += len(times)
                line.took.add_all(times)
        for job, taken in batch.recorded:
            line = self.line(job.queue, job.task)
            line.succeeded += 1
            line.took.add(taken)
        for job, end, seconds in batch.ended:
            if job.job not in refused:
                line = self.line(job.queue, job.task)
                setattr(line, end.state, getattr(line, end.state) + 1)
                if seconds:  # else it never began
                    line.took.add(seconds)
        for job, _, seconds in batch.again:
            if job.job not in refused:
                line = self.line(job.queue, job.task)
                line.retried += 1
                line.took.add(seconds)
        for job, judged in batch.judged:
            if job.job not in refused:
                line = self.line(job.queue, job.task)
                setattr(line, judged.state, getattr(line, judged.state) + 1)
        for job, _, seconds in (*batch.asleep, *batch.restarted):
            line = self.line(job.queue, job.task)
            line.slept += 1
            line.took.add(seconds)
        for job in batch.unstarted:
            self.line(job.queue, job.task).given_back += 1

    def merge(self, other: Meters) -> None:
        for (queue, task), line in other.lines.items():
            self.line(queue, task).merge(line)
        for task, count in other.started.items():
            known = task in self.started or len(self.started) < MOST_PLACES
            self.started[task if known else OTHER[1]] += count
        for name in ("found", "empty", "reaped", "declared_dead", "refused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("batches", "exchanges", "lateness"):
            getattr(self, name).merge(getattr(other, name))


def _by_place(jobs: Sequence[Claimed], values: list[float]) -> Iterable[tuple[Place, list[float]]]:
    """A value of each job, by where the jobs are. On the way of every job: most batches are of one place,
    and to find that out costs less than to sort them."""
    tasks = [job.task for job in jobs]
    queues = [job.queue for job in jobs]
    if tasks.count(tasks[0]) == queues.count(queues[0]) == len(jobs):
        return [((queues[0], tasks[0]), values)]
    places: defaultdict[Place, list[float]] = defaultdict(list)
    for place, value in zip(zip(queues, tasks, strict=True), values, strict=True):
        places[place].append(value)
    return places.items()


class Counted:
    """What a whole program has counted, since it began."""

    def __init__(self) -> None:
        self.arrived: dict[Place, int] = {}
        """Jobs that were started from here."""
        self._past = Meters()
        self._living: list[Meters] = []

    def begin(self) -> Meters:
        """Count one more life."""
        meters = Meters()
        self._living.append(meters)
        return meters

    def end(self, meters: Meters) -> None:
        """It counts no more; what it has counted stays."""
        if meters in self._living:
            self._living.remove(meters)
            self._past.merge(meters)

    def sum(self) -> Meters:
        answer = Meters()
        for each in (self._past, *self._living):
            answer.merge(each)
        return answer

    def arrive(self, place: Place, count: int = 1) -> None:
        if place not in self.arrived and len(self.arrived) >= MOST_PLACES:
            place = OTHER
        self.arrived[place] = self.arrived.get(place, 0) + count

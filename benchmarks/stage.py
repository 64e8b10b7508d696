"""Environment of the workloads: fresh databases, filled queues, warm workers, and final checks.

Every reported figure is verified: each job ran exactly once and finished, and none is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.cluster import Cluster
from benchmarks.contender import Contender
from benchmarks.process import Child
from benchmarks.sizes import Sizes

STEP = 120.0  # seconds for one bulk call, a start or a stop
BOOT = 60.0
POLL = 0.002


class Wrong(RuntimeError):
    """The work was not completed correctly, so the figure is not reported."""


@dataclass(frozen=True)
class Stage:
    cluster: Cluster
    rota: Contender
    peers: Sequence[Contender]
    durable: Sequence[Contender]  # peers that compete only in durable steps
    sizes: Sizes
    say: Callable[[str], None]

    @property
    def contenders(self) -> list[Contender]:
        """Return Rota between the two peers with budgets, so that each pair is close in time."""
        return [*self.peers[:1], self.rota, *self.peers[1:]]

    def fresh(self, contender: Contender) -> Ground:
        """Create a database with the contender's schema."""
        database = f"bench_{contender.name.split()[0]}"
        ground = Ground(self, contender, database, self.cluster.create(database))
        with contender.child(ground.dsn) as child:
            child.ask("migrate", BOOT)
        return ground


@dataclass
class Ground:
    """Database of one contender, and the numbers of its jobs (or runs)."""

    stage: Stage
    contender: Contender
    database: str
    dsn: str
    next_number: int = 0
    filled_in: float = 0.0  # seconds of the bulk calls of the last fill

    def fill(self, count: int) -> range:
        """Enqueue jobs by the contender's bulk call; return their numbers."""
        chunk = self.stage.sizes.chunk
        numbers = range(self.next_number, self.next_number + count)
        self.filled_in = 0.0
        with self.contender.child(self.dsn) as child:
            for first in range(numbers.start, numbers.stop, chunk):
                size = min(chunk, numbers.stop - first)
                answer = child.ask("enqueue", STEP, first=first, count=size, calls=1)
                self.filled_in += sum(answer["seconds"])
        self.next_number = numbers.stop
        return numbers

    def settle(self) -> None:
        self.stage.cluster.settle(self.database)

    def number(self, query: str) -> int:
        return self.stage.cluster.number(self.database, query)

    def drop(self) -> None:
        self.stage.cluster.drop(self.database)

    @contextmanager
    def workers(self, processes: int) -> Iterator[Workers]:
        with ExitStack() as stack:
            children = [
                stack.enter_context(self.contender.child(self.dsn)) for _ in range(processes)
            ]
            yield Workers(self, children)


@dataclass
class Workers:
    """Worker processes of one contender: started, connected, and waiting for the command to work."""

    ground: Ground
    children: list[Child]

    def warm_up(self) -> None:
        """Run a small drain and discard its time: compiles code, opens connections and fills caches."""
        numbers = self.ground.fill(
            max(1, self.ground.stage.sizes.warm // self.ground.contender.jobs)
        )
        self.drain(numbers)

    def drain(self, numbers: range, since_first: bool = False) -> float:
        """Run all these jobs; return the seconds from the command "work" to the last stored completion.

        With `since_first` the time starts at the first handler: start-up is a large part of a short drain.
        """
        before = self._finished()
        jobs = len(numbers) * self.ground.contender.jobs
        began = self._begin([1, jobs] if since_first else [jobs])
        first = self._wait_for(jobs, self._patience(jobs))
        ended = self._wait_until_quiet()
        self._check(self._stop(), numbers, before)
        return (ended - (first if since_first else began)) / 1e9

    def reach(self, marks: Sequence[int], queued: range) -> list[float]:
        """Run one process until all marks are passed; return the seconds at each mark."""
        (child,) = self.children
        before = self._finished()
        began = self._begin(marks)
        times: dict[int, float] = {}
        for answer in child.answers(self._patience(max(marks))):
            if answer.get("count") in marks:
                times.setdefault(answer["count"], (answer["at"] - began) / 1e9)
            if len(times) == len(marks):
                break
        [stopped] = self._stop()
        self._check_part(stopped["count"], queued, before)
        return [times[mark] for mark in marks]

    def _begin(self, marks: Sequence[int]) -> int:
        for child in self.children:
            child.tell(
                "work",
                concurrency=self.ground.contender.concurrency,
                haste=True,
                marks=list(marks),
                timed=False,
            )
        return min(int(child.until("working", STEP)["working"]) for child in self.children)

    def _wait_for(self, count: int, within: float) -> int:
        """Wait until the processes together have run `count` jobs. Each reports its own count.

        Return the time of the first report.
        """
        deadline = time.monotonic() + within
        counts = dict.fromkeys(range(len(self.children)), 0)
        said: list[int] = []
        while sum(counts.values()) < count:
            for place, child in enumerate(self.children):
                answer = child.poll(0.005 if len(self.children) > 1 else within)
                if answer and "count" in answer:
                    counts[place] = answer["count"]
                    said.append(answer["at"])
            if time.monotonic() > deadline:
                name, ran = self.ground.contender.name, sum(counts.values())
                complaints = "".join(child.complaint() for child in self.children)
                raise Wrong(f"{name}: {ran} of {count} jobs ran in {within:.0f} s{complaints}")
        return min(said)

    def _wait_until_quiet(self) -> int:
        contender = self.ground.contender
        deadline = time.monotonic() + STEP
        with self.ground.stage.cluster.connection(self.ground.database) as connection:
            while True:
                row = connection.execute(contender.quiet).fetchone()
                if row and row[0]:
                    return time.monotonic_ns()
                if time.monotonic() > deadline:
                    raise Wrong(f"{contender.name}: completions were still open after {STEP:.0f} s")
                time.sleep(POLL)

    def _stop(self) -> list[dict[str, int]]:
        for child in self.children:
            child.tell("stop")
        return [child.until("done", STEP) for child in self.children]

    def _patience(self, jobs: int) -> float:
        return 60 + jobs / self.ground.contender.slowest

    def _finished(self) -> int:
        query = self.ground.contender.finished
        return self.ground.number(query) if query else 0

    def _check(self, stopped: Sequence[dict[str, int]], numbers: range, before: int) -> None:
        name, each = self.ground.contender.name, self.ground.contender.jobs
        jobs = each * len(numbers)
        ran = sum(answer["count"] for answer in stopped)
        total = sum(answer["total"] for answer in stopped)
        if ran != jobs or total != each * sum(numbers):
            raise Wrong(f"{name}: {ran} executions of {jobs} jobs, or a job ran twice")
        if left := self.ground.number(self.ground.contender.waiting):
            raise Wrong(f"{name}: {left} jobs are left")
        if self.ground.contender.finished and self._finished() - before != jobs:
            raise Wrong(f"{name}: {self._finished() - before} of {jobs} were recorded")

    def _check_part(self, ran: int, queued: range, before: int) -> None:
        name = self.ground.contender.name
        recorded = self._finished() - before
        left = self.ground.number(self.ground.contender.waiting)
        if recorded != ran or recorded + left != len(queued):
            raise Wrong(f"{name}: {ran} ran, {recorded} recorded, {left} left of {len(queued)}")

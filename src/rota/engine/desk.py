"""What a worker has on its desk: the jobs it holds, and where each of them is.

    put ──▶ backlog ──▶ running ──▶ finished ──▶ take

The exchange puts claimed jobs on one side and takes finished ones from the other; executors do what is
in between. The desk starts as many as there are places.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rota.engine.execute import (
    Executor,
    LoopExecutor,
    Stop,
    ThreadExecutor,
    judge,
    policy_of,
)
from rota.model.context import Port
from rota.model.outcome import Again, Done, Ended, Outcome, Unstarted
from rota.model.task import Definition
from rota.store.jobs import Claimed

WAKE_EVERY = 50


@dataclass(slots=True)
class Batch:
    """Finished jobs on their way to be recorded."""

    done: list[tuple[Claimed, str | None, float]] = field(default_factory=list)
    ended: list[tuple[Claimed, Ended, float]] = field(default_factory=list)
    again: list[tuple[Claimed, Again, float]] = field(default_factory=list)
    unstarted: list[Claimed] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.done or self.ended or self.again or self.unstarted)

    def singly(self) -> Iterator[Batch]:
        """The same jobs, a batch each."""
        yield from (Batch(done=[each]) for each in self.done)
        yield from (Batch(ended=[each]) for each in self.ended)
        yield from (Batch(again=[each]) for each in self.again)
        yield from (Batch(unstarted=[each]) for each in self.unstarted)

    @property
    def claims(self) -> set[int]:
        return (
            {job.claim for job, _, _ in self.done}
            | {job.claim for job, _, _ in self.ended}
            | {job.claim for job, _, _ in self.again}
            | {job.claim for job in self.unstarted}
        )


class Desk:
    def __init__(
        self,
        tasks: Mapping[str, Definition],
        capacity: int,
        payload_limit: int,
        ports: Callable[[Claimed], Port] | None = None,
    ) -> None:
        self._tasks = tasks
        self.capacity = capacity
        self._backlog: deque[tuple[float, Claimed]] = deque()
        self._running: dict[int, Claimed] = {}
        self._parked: set[int] = set()  # of those running: they only wait, and take no place
        self._finished = Batch()
        self._on_finished: Callable[[], None] = lambda: None
        self._empty = asyncio.Event()
        self._empty.set()
        self._loop = LoopExecutor(self._end, payload_limit, ports)
        self._threads = ThreadExecutor(self._end, payload_limit, ports)

    def when_finished(self, callback: Callable[[], None]) -> None:
        self._on_finished = callback

    # What is where

    @property
    def backlog(self) -> int:
        return len(self._backlog)

    @property
    def running(self) -> int:
        """How many places are taken."""
        return len(self._running) - len(self._parked)

    @property
    def idle(self) -> int:
        return self.capacity - self.running

    @property
    def waited(self) -> float:
        """How long the oldest job here has waited for a place."""
        return time.monotonic() - self._backlog[0][0] if self._backlog else 0.0

    @property
    def has_finished(self) -> bool:
        return bool(self._finished)

    @property
    def finished(self) -> int:
        return len(self._finished.done)

    def claims(self) -> set[int]:
        """The claims of everything here."""
        return (
            {job.claim for job in self._running.values()}
            | {job.claim for _, job in self._backlog}
            | self._finished.claims
        )

    # In, through, out

    def put(self, jobs: Sequence[Claimed]) -> None:
        now = time.monotonic()
        self._backlog.extend([(now, job) for job in jobs])
        if self._backlog:
            self._empty.clear()
        self._fill()

    def _fill(self) -> None:
        running, backlog, parked = self._running, self._backlog, self._parked
        while backlog and len(running) - len(parked) < self.capacity:
            _, job = backlog.popleft()
            if job.expired:
                self._finished.ended.append((job, Ended("expired", None), 0.0))
                self._on_finished()
                continue
            task = self._tasks[job.task]
            running[job.job] = job
            try:
                retry, timeout = policy_of(job, task)
                executor: Executor = self._loop if task.is_async else self._threads
                executor.start(job, task, retry, timeout)
            except Exception as error:
                # Options that no longer make sense fail this job, not the worker.
                self._end(job, judge(error, job, task.policy.retry), 0.0)
        if not running and not backlog:
            self._empty.set()

    def _end(self, job: Claimed, outcome: Outcome, took: float) -> None:
        if self._running.pop(job.job, None) is None:
            return  # it was given up on before it ended
        if self._parked:
            self._parked.discard(job.job)
        finished = self._finished
        match outcome:
            case Done(result):
                finished.done.append((job, result, took))
                # One call to wake the exchange, and one whenever there is enough for a second trade.
                notable = len(finished.done) % WAKE_EVERY == 1
            case Ended():
                finished.ended.append((job, outcome, took))
                notable = True
            case Again():
                finished.again.append((job, outcome, took))
                notable = True
            case Unstarted():
                finished.unstarted.append(job)
                notable = True
        self._fill()
        if notable:
            self._on_finished()

    def take(self) -> Batch:
        """Everything finished since the last call."""
        taken, self._finished = self._finished, Batch()
        return taken

    @contextmanager
    def parked(self, job: int) -> Iterator[None]:
        """While a job only waits for others, its place is somebody else's: perhaps theirs."""
        if job in self._running:
            self._parked.add(job)
            self._fill()
            self._on_finished()
        try:
            yield
        finally:
            self._parked.discard(job)

    # Letting go

    def put_away(self, older_than: float) -> int:
        """Give up jobs that have waited here for a place too long: somebody else may have one."""
        given = 0
        oldest = time.monotonic() - older_than
        while self._backlog and self._backlog[0][0] <= oldest:
            self._finished.unstarted.append(self._backlog.popleft()[1])
            given += 1
        if not self._running and not self._backlog:
            self._empty.set()
        return given

    def cancel(self, jobs: Sequence[int]) -> None:
        """Somebody wished these cancelled: they never start, or are told to stop."""
        wanted = set(jobs)
        for entry in [entry for entry in self._backlog if entry[1].job in wanted]:
            self._backlog.remove(entry)
            self._finished.ended.append((entry[1], Ended("cancelled", None), 0.0))
        for job in wanted & self._running.keys():
            self._stop(self._running[job], Stop.CANCELLED)
        if self.has_finished:
            self._on_finished()

    def stop_all(self) -> None:
        """Tell everything that runs to stop; what does goes back as it was."""
        self.put_away(older_than=0)
        for job in list(self._running.values()):
            self._stop(job, Stop.DRAINED)

    def stop_parked(self) -> None:
        """Let go of jobs that only wait for others: they can wait elsewhere."""
        for job in list(self._parked):
            self._stop(self._running[job], Stop.DRAINED)

    def abandon(self) -> None:
        """Give back what would not stop. If it ends after all, nobody listens any more."""
        for job in list(self._running.values()):
            self._finished.unstarted.append(job)
        self._running.clear()
        self._parked.clear()
        self._empty.set()

    def _stop(self, job: Claimed, why: Stop) -> None:
        executor: Executor = self._loop if self._tasks[job.task].is_async else self._threads
        executor.stop(job.job, why)

    async def until_empty(self) -> None:
        await self._empty.wait()

    def close(self) -> None:
        self._threads.close()

"""What a worker has on its desk: the jobs it holds, and where each of them is.

    put ──▶ backlog ──▶ running ──▶ finished ──▶ take

The exchange puts claimed jobs on one side and takes finished ones from the other; executors do what is
in between. The desk starts as many as there are places.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from rota.engine.execute import Stop, judge, policy_of
from rota.engine.executors import Executors
from rota.engine.lone import Lone, Mark
from rota.engine.otel import is_kept
from rota.engine.tracing import Tracing
from rota.engine.verdict import is_grave, verdict
from rota.model.context import Port
from rota.model.outcome import (
    Again,
    Asleep,
    Done,
    Ended,
    Judged,
    Lost,
    Outcome,
    Recorded,
    Restarted,
    Unstarted,
)
from rota.model.retry import Retry
from rota.model.task import Definition
from rota.store.jobs import Claimed

WAKE_EVERY = 50

RECORDED = 0
"""The claim of a job that has recorded its own end: none any more."""


@dataclass(slots=True)
class Batch:
    """Finished jobs on their way to be recorded."""

    done: list[tuple[Claimed, str | None, float]] = field(default_factory=list)
    ended: list[tuple[Claimed, Ended, float]] = field(default_factory=list)
    again: list[tuple[Claimed, Again, float]] = field(default_factory=list)
    unstarted: list[Claimed] = field(default_factory=list)
    judged: list[tuple[Claimed, Judged]] = field(default_factory=list)
    asleep: list[tuple[Claimed, Asleep, float]] = field(default_factory=list)
    restarted: list[tuple[Claimed, Restarted, float]] = field(default_factory=list)
    recorded: list[tuple[Claimed, float]] = field(default_factory=list)
    traced: list[tuple[int, str]] = field(default_factory=list)
    """Where those of them were that others wait for."""

    def __bool__(self) -> bool:
        rare = self.ended or self.again or self.unstarted or self.judged or self.recorded
        return bool(self.done or rare or self.asleep or self.restarted)

    def singly(self) -> Iterator[Batch]:
        """The same jobs, a batch each."""
        yield from (Batch(done=[each]) for each in self.done)
        yield from (Batch(ended=[each]) for each in self.ended)
        yield from (Batch(again=[each]) for each in self.again)
        yield from (Batch(unstarted=[each]) for each in self.unstarted)
        yield from (Batch(judged=[each]) for each in self.judged)
        yield from (Batch(asleep=[each]) for each in self.asleep)
        yield from (Batch(restarted=[each]) for each in self.restarted)

    @property
    def claims(self) -> set[int]:
        return (
            {job.claim for job, _, _ in self.done}
            | {job.claim for job, _, _ in self.ended}
            | {job.claim for job, _, _ in self.again}
            | {job.claim for job in self.unstarted}
            | {job.claim for job, _ in self.judged}
            | {job.claim for job, _, _ in (*self.asleep, *self.restarted)}
        )


async def _unmarked(job: Claimed, alone: bool) -> bool:
    return True


class Desk:
    def __init__(
        self,
        tasks: Mapping[str, Definition],
        capacity: int,
        payload_limit: int,
        ports: Callable[[Claimed], Port] | None = None,
        children: int = 0,
        mark: Mark = _unmarked,
        worker: int | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._tasks = tasks
        self.capacity = capacity
        self._backlog: deque[tuple[float, Claimed]] = deque()
        self._running: dict[int, Claimed] = {}
        # Of those running, those that only wait, and take no place: in so many branches.
        self._parked: dict[Claimed, int] = {}
        self._finished = Batch()
        self._on_finished: Callable[[], None] = lambda: None
        self._empty = asyncio.Event()
        self._empty.set()
        self.expected: set[UUID] = set()
        """Nonces of claims that jobs here are about to have."""
        self._lone = Lone(mark, self._beside_the_lone, self._resume)
        self._judging: set[asyncio.Task[None]] = set()
        self._executors = Executors(self._end, payload_limit, children, ports, worker, tracing)
        self.started = self._executors.started

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
        return len(self._finished.done) + len(self._finished.asleep)

    @property
    def reserved(self) -> bool:
        """Whether one job is to run alone, so that nothing else may begin."""
        return self._lone.reserved

    def claims(self) -> set[int]:
        """The claims of everything here."""
        return (
            {job.claim for job in self._running.values()}
            | {job.claim for _, job in self._backlog}
            | self._finished.claims
        )

    def held(self) -> set[int]:
        """The claims of what runs here or is about to."""
        mine = {job.claim for job in self._running.values()}
        return (mine | {job.claim for _, job in self._backlog}) - {RECORDED}

    # In, through, out

    def put(self, jobs: Sequence[Claimed]) -> None:
        now = time.monotonic()
        self._executors.look()
        self._backlog.extend([(now, job) for job in jobs])
        if jobs and jobs[0].lost < 0:
            # Suspects come first: there is room for them, and they are not held ahead.
            self._backlog.rotate(len(jobs))
        if self._backlog:
            self._empty.clear()
        self._fill()

    def _fill(self) -> None:
        running, backlog, parked = self._running, self._backlog, self._parked
        while backlog and len(running) - len(parked) < self.capacity:
            if self._lone.reserved:
                self.put_away(older_than=0)
                self._on_finished()
                break
            _, job = backlog.popleft()
            # What it has begun it may end, however long it has slept.
            if job.expired and not job.begun:
                self._finished.ended.append((job, Ended("expired", None), 0.0))
                self._on_finished()
                continue
            task = self._tasks[job.task]
            if job.job in running:
                self._give_up(running[job.job])
            running[job.job] = job
            try:
                retry, timeout = policy_of(job, task)
                if job.lost < 0:
                    self._judge(job, task, retry, timeout)
                else:
                    self._executors.start(job, task, retry, timeout)
            except Exception as error:
                # Options that no longer make sense fail this job, not the worker.
                self._end(job, judge(error, job, task.policy.retry), 0.0)
        if not running and not backlog:
            self._empty.set()

    def _give_up(self, old: Claimed) -> None:
        """The job is here again, under another claim: what runs under the old one counts for nothing."""
        self._parked.pop(old, None)
        self._lone.end(old)
        self._stop(old, Stop.LOST)

    def _beside_the_lone(self) -> int:
        """How many others do something that could do harm."""
        return len(self._running) - len(self._parked) - 1

    def _resume(self) -> None:
        self._fill()
        self._on_finished()

    def _judge(self, job: Claimed, task: Definition, retry: Retry, timeout: float | None) -> None:
        """Whether a job that was lost with a worker runs again is said first."""

        grave = is_grave(job)
        if grave:
            self._lone.expect(job)

        async def judging() -> None:
            try:
                judged: Judged | Lost | None = await verdict(job, task, retry)
                if judged is None and grave and not await self._lone.begin(job):
                    judged = Lost()
                if judged is not None:
                    self._end(job, judged, 0.0)
                elif self._running.get(job.job) is job:
                    self._executors.start(job, task, retry, timeout)
            except Exception as error:
                self._end(job, judge(error, job, retry), 0.0)

        judging_it = asyncio.get_running_loop().create_task(judging())
        self._judging.add(judging_it)
        judging_it.add_done_callback(self._judging.discard)

    def _end(self, job: Claimed, outcome: Outcome, took: float) -> None:
        if job.span is not None:
            self._executors.untrace(job, Recorded() if job.claim == RECORDED else outcome)
        if self._running.get(job.job) is not job:
            return  # it was given up on before it ended; perhaps it is here again
        del self._running[job.job]
        if self._parked:
            self._parked.pop(job, None)
        if self._lone.reserved:
            self._lone.end(job)
            self._lone.look()
        finished = self._finished
        if job.claim == RECORDED:
            outcome = Recorded()
        if job.span is not None:
            self._note(job, job.span, outcome)
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
            case Judged():
                finished.judged.append((job, outcome))
                notable = True
            case Asleep():
                finished.asleep.append((job, outcome, took))
                notable = len(finished.asleep) % WAKE_EVERY == 1
            case Restarted():
                finished.restarted.append((job, outcome, took))
                notable = True
            case Recorded():
                finished.recorded.append((job, took))
                notable = True
            case Lost():
                notable = False
        self._fill()
        if notable:
            self._on_finished()

    def _note(self, job: Claimed, span: str, outcome: Outcome) -> None:
        """Of a job that is over, whoever waits for it is told where it was in a trace."""
        if job.run is not None and isinstance(outcome, Done | Ended) and is_kept(span):
            self._finished.traced.append((job.job, span))

    def let_go(self, job: Claimed, fate: Outcome) -> None:
        """The job has left, and its code will not end: what it still does is not looked at."""
        self._end(job, fate, 0.0)

    def take(self) -> Batch:
        """Everything finished since the last call."""
        taken, self._finished = self._finished, Batch()
        return taken

    @contextmanager
    def parked(self, job: Claimed) -> Iterator[None]:
        """While a job only waits for others, its place is somebody else's: perhaps theirs."""
        if self._running.get(job.job) is job:
            self._parked[job] = self._parked.get(job, 0) + 1
            self._lone.waits(job)
            self._fill()
            self._on_finished()
        try:
            yield
        finally:
            if self._parked.get(job, 0) > 1:
                self._parked[job] -= 1
            else:
                self._parked.pop(job, None)

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
            self._stop(job, Stop.DRAINED)

    def lose(self, claims: Collection[int] | None = None) -> int:
        """These claims, or all, were taken away: stop what runs under them, and record nothing of it."""
        kept = [entry for entry in self._backlog if not _is_of(entry[1], claims)]
        lost = len(self._backlog) - len(kept)
        self._backlog = deque(kept)
        for job in list(self._running.values()):
            if _is_of(job, claims):
                self._stop(job, Stop.LOST)
                lost += 1
        if not self._running and not self._backlog:
            self._empty.set()
        return lost

    def abandon(self, *, give_back: bool = True) -> None:
        """Let go of what would not stop. If it ends after all, nobody listens any more."""
        if give_back:
            self._finished.unstarted += self._running.values()
        self._running.clear()
        self._parked.clear()
        self._empty.set()

    def _stop(self, job: Claimed, why: Stop) -> None:
        self._executors.stop(job, self._tasks[job.task], why)

    async def until_empty(self) -> None:
        await self._empty.wait()

    def drain(self) -> None:
        """Let what runs know that it had better come to an end."""
        self._executors.drain()

    async def close(self) -> None:
        self._executors.close()
        await self._executors.closed()


def _is_of(job: Claimed, claims: Collection[int] | None) -> bool:
    return claims is None or job.claim in claims

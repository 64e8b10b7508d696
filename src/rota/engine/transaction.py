"""A transaction of a job's own code, under its fence: `async with ctx.transaction() as connection`.

The job gets a claim of its own first, so that nobody else's jobs wait for this transaction. The claim is
pinned until the transaction ends: nobody takes the job away meanwhile, and if somebody has, nothing
begins. With `ctx.complete(…)` the job's end is recorded in the same transaction, just before its commit:
what it wrote and that it is done are true together, or not at all. Inside a step the transaction is the
step's: it is committed with the step's own record.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from rota.engine.desk import RECORDED
from rota.engine.otel import is_kept
from rota.engine.stepping import inside
from rota.errors import ClaimLost, RotaError
from rota.model import codec
from rota.model.replay import Entry
from rota.store import claims, failures, jobs, links, steps, waiters
from rota.store.jobs import Claimed, Moved
from rota.store.on import run_on
from rota.store.query import Query

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from rota.engine.life import Life
    from rota.store.session import BlockingSession, Session

_UNSET = object()


def own_claim(
    worker: int, job: Claimed, nonce: UUID, seconds: float | None = None
) -> list[Query[Any]]:
    """The transaction that gives a job a claim of its own, for so many seconds or as long as the worker
    lives; its last answer is the claim. None: the job has been taken away."""
    return [
        claims.hold(worker, [job.claim]),
        claims.split(worker, job.claim, job.job, nonce, seconds),
        claims.of(worker, job.job),
    ]


class Fence:
    """One attempt's hold on its job."""

    def __init__(self, life: Life, job: Claimed, flush: Callable[[], Awaitable[None]]) -> None:
        self.worker = life.id
        self.job = job
        self.schema = life.database.schema
        self._flush = flush
        self._database = life.database
        self._plain = life.plain
        self._news = life.news
        self._expected = life.desk.expected
        self._tracing = life.tracing
        self._task = life.tasks[job.task]
        self._began = time.perf_counter()
        self._own = False  # whether the job has a claim of its own
        self.is_open = False
        self._result: Any = _UNSET

    async def take(self) -> int:
        """A claim of the job's own. Raises ClaimLost."""
        job = self.job
        if job.claim == RECORDED:
            raise RotaError(f"job {job.job} has recorded its end: there is nothing to hold on to")
        if not self._own:
            nonce = uuid4()
            self._expected.add(nonce)
            try:
                _, _, found = await self._database.insist_on(own_claim(self.worker, job, nonce))
                if not found:
                    raise self._lost()
                [job.claim] = found
            finally:
                self._expected.discard(nonce)
            self._own = True
        # What the code was told before must be known before anything comes of it.
        await self._flush()
        return job.claim

    def complete(self, result: Any) -> None:
        if inside.get() is not None:
            raise RotaError(
                "ctx.complete(…) ends the job, and this is one of its steps: return from it first"
            )
        if not self.is_open:
            raise RotaError(
                "ctx.complete(…) records the job's end with a transaction: call it inside "
                "`async with ctx.transaction()`"
            )
        if self._result is not _UNSET:
            raise RotaError("ctx.complete(…) was called before: a job ends once")
        limit = self._database.settings.payload_limit
        what = f"what task {self._task.name!r} completed with"
        self._result = None if result is None else codec.encode(result, what, limit)

    # Inside the event loop

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Session]:
        """A transaction in which the job is pinned."""
        await self.take()
        async with self._plain.transaction() as connection:
            pinned = run_on(connection, self._pin(), self.schema)
            assert isinstance(pinned, Awaitable)
            self._check(await pinned)
            connection.deadline = None
            try:
                yield connection
            finally:
                connection.deadline = self._plain.deadline

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        with self._tracing.transaction(self.job):
            async with self._transaction() as connection:
                yield connection

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        step = inside.get()
        if step is not None:
            connection = await step.enter(self)
            async with connection.transaction():
                yield connection
            return
        self._enter()
        moved: Moved | None = None
        try:
            async with self.opened() as connection:
                yield connection
                if self._result is not _UNSET:
                    connection.deadline = self._plain.deadline
                    await connection.execute(_PLANS)
                    if (note := self._note()) is not None:
                        noted = run_on(connection, note, self.schema)
                        assert isinstance(noted, Awaitable)
                        await noted
                    ended = run_on(connection, self._completion(), self.schema)
                    assert isinstance(ended, Awaitable)
                    moved = self._accepted(await ended)
        except Exception as error:
            if moved is None or not failures.is_passing(error):
                raise
            # Cut off while it committed: did it?
            if not await self._is_recorded():
                raise
        finally:
            self.is_open = False
            if moved is None:
                self._result = _UNSET
        if moved is not None:
            self.job.claim = RECORDED
            await self._tell(moved)

    # In a thread. `wait` runs a coroutine in the loop and waits for it.

    @contextmanager
    def opened_blocking(self, wait: Any) -> Iterator[BlockingSession]:
        wait(self.take())
        with self._plain.blocking_transaction(wait) as connection:
            pinned = run_on(connection, self._pin(), self.schema)
            assert not isinstance(pinned, Awaitable)
            self._check(pinned)
            connection.deadline = None
            try:
                yield connection
            finally:
                connection.deadline = self._plain.deadline

    @contextmanager
    def blocking_transaction(self, wait: Any) -> Iterator[Connection[Any]]:
        with (
            self._tracing.transaction(self.job),
            self._blocking_transaction(wait) as connection,
        ):
            yield connection

    @contextmanager
    def _blocking_transaction(self, wait: Any) -> Iterator[Connection[Any]]:
        step = inside.get()
        if step is not None:
            connection = step.enter_blocking(self, wait)
            with connection.transaction():
                yield connection
            return
        self._enter()
        moved: Moved | None = None
        try:
            with self.opened_blocking(wait) as connection:
                yield connection
                if self._result is not _UNSET:
                    connection.deadline = self._plain.deadline
                    connection.execute(_PLANS)
                    if (note := self._note()) is not None:
                        run_on(connection, note, self.schema)
                    ended = run_on(connection, self._completion(), self.schema)
                    assert not isinstance(ended, Awaitable)
                    moved = self._accepted(ended)
        except Exception as error:
            if moved is None or not failures.is_passing(error):
                raise
            if not wait(self._is_recorded()):
                raise
        finally:
            self.is_open = False
            if moved is None:
                self._result = _UNSET
        if moved is not None:
            self.job.claim = RECORDED
            wait(self._tell(moved))

    # What both have in common

    def _enter(self) -> None:
        if self.is_open:
            raise RotaError("this job is inside a transaction already: use its connection")
        self.is_open = True

    def _pin(self) -> Query[int]:
        return claims.pin(self.worker, self.job.claim, self.job.job)

    def _check(self, pinned: list[int]) -> None:
        if not pinned:
            raise self._lost()

    def _completion(self) -> Query[Moved]:
        job = self.job
        took = time.perf_counter() - self._began
        return jobs.complete(
            self.worker, [job.claim], [job.job], [self._result], [took], [job.run is not None]
        )

    def _note(self) -> Query[int] | None:
        """What tells whoever waits for the job where it was in a trace."""
        span = self.job.span
        if span is None or self.job.run is None or not is_kept(span):
            return None
        return links.write([(self.job.job, span)])

    def _accepted(self, answer: list[Moved]) -> Moved:
        [moved] = answer
        if moved.jobs:
            raise self._lost()
        return moved

    async def _is_recorded(self) -> bool:
        query = jobs.recorded([self.job.job], [self.job.claim])
        return bool(await self._database.insist(query))

    async def is_kept(self, entry: Entry) -> bool:
        """Whether a step was kept as it came to here."""
        known = await self._database.insist(steps.of([self.job]))
        return any(
            (each.kept.kind, each.kept.name, each.kept.number)
            == (entry.kind, entry.name, entry.number)
            and each.kept.result == entry.result
            for each in known
        )

    async def _tell(self, moved: Moved) -> None:
        job = self.job
        self._news.tell(moved.queues)
        run = [] if job.run is None else [job.run]
        try:
            await self._database.run(waiters.tell([job.job, *run, *moved.runs]))
        except Exception as error:
            # Of no consequence: who waits also looks.
            if not failures.is_passing(error):
                raise

    def _lost(self) -> ClaimLost:
        return ClaimLost(
            f"job {self.job.job} is no longer held by this worker: what it does counts for nothing"
        )


# What the completion's statement relies on; nothing of the user's comes after it.
_PLANS = (
    "select set_config(name, 'off', true) "
    "from unnest(array['enable_seqscan', 'enable_bitmapscan', 'enable_mergejoin', 'jit']) as s (name)"
)

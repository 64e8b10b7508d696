"""Transaction of a job's code, under its fence: `async with ctx.transaction() as connection`.

The job gets its own claim first, so that no other job of the batch waits for this transaction. The claim is
locked until the transaction ends, so the job cannot be taken back meanwhile. If it was taken back before,
the transaction does not begin.

With `ctx.complete(…)` the job's success is recorded in the same transaction, just before the commit. So the
data that the code wrote and the outcome are committed together, or not at all. Inside a step, the
transaction belongs to the step: it is committed together with the step's journal entry.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from rota.engine.durable.step import current_step
from rota.engine.execution.job_services import JobStorage
from rota.engine.telemetry.otel import is_sampled
from rota.engine.telemetry.tracing import Tracing
from rota.errors import ClaimLost, DatabaseError, RotaError
from rota.model import codec
from rota.model.journal import JournalEntry
from rota.model.task import TaskDefinition
from rota.store import claims, jobs, listeners, pg_errors, steps, trace_links
from rota.store.jobs import RECORDED_CLAIM, ClaimedJob, MoveResult
from rota.store.query import Query
from rota.store.user_connection import run_on

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from rota.store.connection import PgConnection, SyncPgConnection

_UNSET = object()


def split_claim(
    worker: int, job: ClaimedJob, nonce: UUID, seconds: float | None = None
) -> list[Query[Any]]:
    """Return the transaction that gives a job its own claim.

    The claim expires after `seconds`, or with None lasts as long as the worker lives. The last statement
    returns the claim's id, or no row if this worker no longer holds the job.
    """
    return [
        claims.lock(worker, [job.claim]),
        claims.split(worker, job.claim, job.job, nonce, seconds),
        claims.by_job(worker, job.job),
    ]


class JobTransaction:
    """Claim and transaction of one attempt."""

    def __init__(
        self,
        storage: JobStorage,
        tracing: Tracing,
        task: TaskDefinition,
        job: ClaimedJob,
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self.worker = storage.worker
        self.job = job
        self.schema = storage.database.schema
        self._flush = flush
        self._database = storage.database
        self._raw_connections = storage.raw_connections
        self._notifier = storage.notifier
        self._expected_nonces = storage.expected_nonces
        self._tracing = tracing
        self._task = task
        self._began = time.perf_counter()
        self._has_own_claim = False
        self.is_open = False
        self._result: Any = _UNSET

    async def acquire_own_claim(self) -> int:
        """Give the job its own claim, write its pending journal entries, and return the claim's id.

        Raise ClaimLost if this worker no longer holds the job.
        """
        job = self.job
        if job.claim == RECORDED_CLAIM:
            raise RotaError(f"job {job.job} has recorded its end: there is nothing to hold on to")
        if not self._has_own_claim:
            nonce = uuid4()
            self._expected_nonces.add(nonce)
            try:
                _, _, found = await self._database.transact_with_retry(
                    split_claim(self.worker, job, nonce)
                )
                if not found:
                    raise self._claim_lost_error()
                [job.claim] = found
            finally:
                self._expected_nonces.discard(nonce)
            self._has_own_claim = True
        # Values that the code has read must be stored before it acts on them.
        await self._flush()
        return job.claim

    def complete(self, result: Any) -> None:
        if current_step.get() is not None:
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
        label = f"the result of task {self._task.name!r}"
        self._result = None if result is None else codec.encode(result, label, limit)

    # In the event loop

    @asynccontextmanager
    async def locked_transaction(self) -> AsyncIterator[PgConnection]:
        """Open a transaction that locks the job's claim, so that the job cannot be taken back."""
        await self.acquire_own_claim()
        async with self._raw_connections.transaction() as connection:
            locked = run_on(connection, self._lock_query(), self.schema)
            assert isinstance(locked, Awaitable)
            self._check_locked(await locked)
            connection.answer_timeout = None
            try:
                yield connection
            finally:
                connection.answer_timeout = self._raw_connections.answer_timeout

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        with self._tracing.transaction(self.job):
            async with self._transaction() as connection:
                yield connection

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        step = current_step.get()
        if step is not None:
            connection = await step.enter_transaction(self)
            async with connection.transaction():
                yield connection
            return
        self._enter()
        move: MoveResult | None = None
        try:
            async with self.locked_transaction() as connection:
                yield connection
                if self._result is not _UNSET:
                    connection.answer_timeout = self._raw_connections.answer_timeout
                    await connection.execute(_PLAN_SETTINGS)
                    if (link_query := self._trace_link_query()) is not None:
                        written = run_on(connection, link_query, self.schema)
                        assert isinstance(written, Awaitable)
                        await written
                    completion = run_on(connection, self._complete_query(), self.schema)
                    assert isinstance(completion, Awaitable)
                    move = self._read_completion(await completion)
        except Exception as error:
            if move is None or not pg_errors.is_transient(error):
                raise
            # The connection broke during the commit, which may have succeeded.
            if not await self._is_recorded():
                raise
        finally:
            self.is_open = False
            if move is None:
                self._result = _UNSET
        if move is not None:
            self.job.claim = RECORDED_CLAIM
            await self._notify(move)

    # In a thread. `run_sync` runs a coroutine in the event loop and waits for it.

    @contextmanager
    def sync_locked_transaction(self, run_sync: Any) -> Iterator[SyncPgConnection]:
        run_sync(self.acquire_own_claim())
        with self._raw_connections.sync_transaction(run_sync) as connection:
            locked = run_on(connection, self._lock_query(), self.schema)
            assert not isinstance(locked, Awaitable)
            self._check_locked(locked)
            connection.answer_timeout = None
            try:
                yield connection
            finally:
                connection.answer_timeout = self._raw_connections.answer_timeout

    @contextmanager
    def sync_transaction(self, run_sync: Any) -> Iterator[Connection[Any]]:
        with (
            self._tracing.transaction(self.job),
            self._sync_transaction(run_sync) as connection,
        ):
            yield connection

    @contextmanager
    def _sync_transaction(self, run_sync: Any) -> Iterator[Connection[Any]]:
        step = current_step.get()
        if step is not None:
            connection = step.enter_transaction_sync(self, run_sync)
            with connection.transaction():
                yield connection
            return
        self._enter()
        move: MoveResult | None = None
        try:
            with self.sync_locked_transaction(run_sync) as connection:
                yield connection
                if self._result is not _UNSET:
                    connection.answer_timeout = self._raw_connections.answer_timeout
                    connection.execute(_PLAN_SETTINGS)
                    if (link_query := self._trace_link_query()) is not None:
                        run_on(connection, link_query, self.schema)
                    completion = run_on(connection, self._complete_query(), self.schema)
                    assert not isinstance(completion, Awaitable)
                    move = self._read_completion(completion)
        except Exception as error:
            if move is None or not pg_errors.is_transient(error):
                raise
            if not run_sync(self._is_recorded()):
                raise
        finally:
            self.is_open = False
            if move is None:
                self._result = _UNSET
        if move is not None:
            self.job.claim = RECORDED_CLAIM
            run_sync(self._notify(move))

    # Shared

    def _enter(self) -> None:
        if self.is_open:
            raise RotaError("this job is inside a transaction already: use its connection")
        self.is_open = True

    def _lock_query(self) -> Query[int]:
        return claims.lock_shared(self.worker, self.job.claim, self.job.job)

    def _check_locked(self, locked: list[int]) -> None:
        if not locked:
            raise self._claim_lost_error()

    def _complete_query(self) -> Query[MoveResult]:
        job = self.job
        seconds = time.perf_counter() - self._began
        return jobs.complete(
            self.worker, [job.claim], [job.job], [self._result], [seconds], [job.run is not None]
        )

    def _trace_link_query(self) -> Query[int] | None:
        """Return the query that stores the job's span for the jobs that wait for it."""
        span = self.job.span
        if span is None or self.job.run is None or not is_sampled(span):
            return None
        return trace_links.write([(self.job.job, span)])

    def _read_completion(self, answer: list[MoveResult]) -> MoveResult:
        [move] = answer
        if move.jobs:
            raise self._claim_lost_error()
        return move

    async def _is_recorded(self) -> bool:
        query = jobs.recorded([self.job.job], [self.job.claim])
        return bool(await self._database.run_with_retry(query))

    async def is_stored(self, entry: JournalEntry) -> bool:
        """True if the journal holds this entry with the same result."""
        rows = await self._database.run_with_retry(steps.read([self.job]))
        return any(
            (each.entry.kind, each.entry.name, each.entry.number)
            == (entry.kind, entry.name, entry.number)
            and each.entry.result == entry.result
            for each in rows
        )

    async def _notify(self, move: MoveResult) -> None:
        job = self.job
        self._notifier.notify(move.queues)
        run = [] if job.run is None else [job.run]
        # The job is recorded, so no error may fail it. Losing this notification is safe: waiters also poll.
        with suppress(DatabaseError):
            await self._database.run(listeners.notify_waiters([job.job, *run, *move.runs]))

    def _claim_lost_error(self) -> ClaimLost:
        return ClaimLost(
            f"job {self.job.job} is no longer held by this worker; this attempt is discarded"
        )


# Planner settings for the completion's statement. The user's code runs no statement after it.
_PLAN_SETTINGS = (
    "select set_config(name, 'off', true) "
    "from unnest(array['enable_seqscan', 'enable_bitmapscan', 'enable_mergejoin', 'jit']) as s (name)"
)

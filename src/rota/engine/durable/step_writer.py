"""Writer of journal entries, progress and log lines for all jobs of a worker.

Jobs wait until their entries are written. Entries that accumulate during one round trip are sent with the
next, in one transaction. So many jobs share the cost of a commit, and no entry waits for a batch to fill.

Jobs do not wait for progress and log lines, which are written after FLUSH_SECONDS. Only the last progress
of a job is written.

A write with a lost answer is sent again. Entries that already exist are not changed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from rota.errors import ClaimLost
from rota.model import codec
from rota.model.journal import JournalEntry
from rota.store import pg_errors, steps
from rota.store.connection import ReconnectingConnection
from rota.store.database import Database
from rota.store.jobs import ClaimedJob
from rota.store.steps import ProgressUpdate, UnwrittenEntry

log = logging.getLogger("rota")

MAX_BATCH_ENTRIES = 1000
"""Entries after which a transaction takes no further write."""

FLUSH_SECONDS = 0.25
"""Delay after which progress and log lines are written."""

MAX_LOG_LINES = 10_000
"""Limit of log lines that wait to be written; beyond it the oldest are dropped."""


class _Write(NamedTuple):
    """Entries of one job, and the future that the job waits for."""

    job: ClaimedJob
    entries: Sequence[JournalEntry]
    done: asyncio.Future[list[JournalEntry]]


class StepWriter:
    def __init__(self, database: Database, worker: int) -> None:
        self._database = database
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._connection = ReconnectingConnection(database)
        self._pending: list[_Write] = []
        self._write_task: asyncio.Task[None] | None = None
        self._progress: dict[int, ProgressUpdate] = {}
        self._log_lines: list[tuple[ClaimedJob, float, str]] = []
        self._flush_task: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] = self._loop.create_future()

    # Steps

    async def write(self, job: ClaimedJob, entries: Sequence[JournalEntry]) -> list[JournalEntry]:
        """Write entries of a job. Return those that already exist, which are not changed.

        Raise ClaimLost if this worker no longer holds the job.
        """
        done: asyncio.Future[list[JournalEntry]] = self._loop.create_future()
        self._pending.append(_Write(job, entries, done))
        if self._write_task is None:
            self._write_task = self._loop.create_task(self._write_pending())
        return await done

    async def _write_pending(self) -> None:
        try:
            while self._pending:
                writes, size = [], 0
                while self._pending and size < MAX_BATCH_ENTRIES:
                    writes.append(self._pending.pop(0))
                    size += len(writes[-1].entries)
                await self._send(writes, time.monotonic() + self._database.settings.outage_timeout)
        finally:
            self._write_task = None

    async def _send(self, writes: list[_Write], deadline: float) -> None:
        entries = [(write.job, entry) for write in writes for entry in write.entries]
        claims = [write.job.claim for write in writes]
        try:
            with pg_errors.translated(self._database.schema, own_connection=True):
                unwritten = await self._record_with_retry(entries, deadline, len(writes) > 1)
        except Exception as error:
            if len(writes) > 1 and not pg_errors.is_transient(error):
                # One write may be the cause: send each by itself, so that the rest succeed.
                for write in writes:
                    await self._send([write], deadline)
                return
            for write in writes:
                if not write.done.done():
                    write.done.set_exception(error)
        except BaseException:
            for write in writes:
                write.done.cancel()
            raise
        else:
            self._resolve_all(writes, claims, unwritten)

    def _resolve_all(
        self, writes: list[_Write], claims: list[int], unwritten: list[UnwrittenEntry]
    ) -> None:
        """Answer writes that were sent under these claims."""
        by_index = {each.index: each for each in unwritten}
        index = 0
        for write, claim in zip(writes, claims, strict=True):
            not_written = [by_index.get(index + at) for at in range(1, len(write.entries) + 1)]
            index += len(write.entries)
            if not write.done.done():
                self._resolve(write, claim, not_written)

    def _resolve(
        self, write: _Write, claim: int, not_written: Sequence[UnwrittenEntry | None]
    ) -> None:
        """Answer a write that was sent under this claim; `not_written` is parallel to its entries."""
        if all(each is None or each.is_held for each in not_written):
            existing = [
                entry for entry, each in zip(write.entries, not_written, strict=True) if each
            ]
            write.done.set_result(existing)
        elif write.job.claim != claim:
            # The job received its own claim meanwhile: send the write again with it.
            self._pending.append(write)
        else:
            write.done.set_exception(
                ClaimLost(
                    f"job {write.job.job} is no longer held by this worker; nothing was stored"
                )
            )

    async def _record_with_retry(
        self,
        entries: Sequence[tuple[ClaimedJob, JournalEntry]],
        deadline: float,
        can_be_split: bool,
    ) -> list[UnwrittenEntry]:
        query = steps.record(self._worker, entries)
        is_retryable = pg_errors.is_transient if can_be_split else pg_errors.may_pass
        pause = 0.05
        while True:
            try:
                [[unwritten]] = await self._connection.send([[query]])
                return unwritten
            except BaseException as error:
                await self._connection.close()
                retryable = isinstance(error, Exception) and is_retryable(error)
                if not retryable or time.monotonic() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    # Progress and logs, which jobs do not wait for. Thread-safe.

    def progress(self, job: ClaimedJob, done: float, total: float | None, note: str | None) -> None:
        # Use the present claim: when this is written, the job may no longer be in this worker.
        update = ProgressUpdate(
            job.claim, job.job, done, total, None if note is None else codec.escape_unstorable(note)
        )
        self._loop.call_soon_threadsafe(self._add, update, None)

    def log(self, job: ClaimedJob, message: str) -> None:
        line = (job, time.monotonic(), codec.escape_unstorable(message))
        self._loop.call_soon_threadsafe(self._add, None, line)

    def _add(
        self, progress: ProgressUpdate | None, line: tuple[ClaimedJob, float, str] | None
    ) -> None:
        if progress is not None:
            self._progress[progress.job] = progress
        if line is not None:
            self._log_lines.append(line)
            if len(self._log_lines) > MAX_LOG_LINES:
                del self._log_lines[: MAX_LOG_LINES // 10]
        if self._flush_task is None:
            self._flush_task = self._loop.create_task(self._flush_later())

    async def _flush_later(self) -> None:
        try:
            while self._progress or self._log_lines:
                await asyncio.wait([self._closing], timeout=FLUSH_SECONDS)
                await self._flush()
        except Exception as error:
            log.warning("progress of jobs could not be written: %s", error)
        finally:
            self._flush_task = None

    async def _flush(self) -> None:
        progress, self._progress = self._progress, {}
        log_lines, self._log_lines = self._log_lines, []
        now = time.monotonic()
        if progress:
            await self._database.run_with_retry(steps.write_progress(list(progress.values())))
        if log_lines:
            entries = [(job, now - at, message) for job, at, message in log_lines]
            await self._database.run_with_retry(steps.write_logs(entries))

    async def close(self) -> None:
        """Write everything that is pending, and close the connection."""
        if self._write_task is not None:
            await asyncio.wait([self._write_task])
        if not self._closing.done():
            self._closing.set_result(None)
        if self._flush_task is not None:
            await asyncio.wait([self._flush_task])
        await self._connection.close()

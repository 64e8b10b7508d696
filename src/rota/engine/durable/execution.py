"""Durable operations of a job: steps, sleeps, signal waits and values.

    operation ──▶ ended in the journal? ── yes ──▶ return the stored result
                          │ no
                          ▼
                  step           run it, store the result, then return it to the code
                  sleep, wait    store it and suspend the job, which then uses no slot, memory or connection

When a suspended job is woken, its code runs again from the first line, and every operation it had
reached returns its stored result. A wait of at most a second stays in the worker. With several branches
of the code, the job is suspended only if none of them is active.

Entries without outside effects (a value, the end of a wait) are written together with the next entry,
before anything happens that could depend on them. A failed step is written in the same way, once a later
operation shows that the code has handled its error. An error that the code does not handle fails the
attempt, and the next attempt runs the step again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn

from rota.engine.durable import journal as durable_journal
from rota.engine.durable.branches import Branches
from rota.engine.durable.journal import Journal
from rota.engine.durable.pending import PendingEntries
from rota.engine.durable.step import StepRaised, current_step
from rota.errors import (
    ArgumentError,
    ClaimLost,
    ReplayMismatch,
    Requeue,
    ResultError,
    RetryLater,
    RotaError,
)
from rota.model import codec
from rota.model.journal import EntryKind, JournalEntry, Replay, StoredEntry
from rota.model.outcome import Quarantined, Restarted, ResultUnstorable, Suspended
from rota.model.result_types import Reader, reader_of_function, reader_of_type
from rota.model.retry import Retry

SINGLE_ATTEMPT = Retry(max_attempts=1)


class DurableExecution:
    """Durable operations of one attempt."""

    def __init__(
        self,
        job: int,
        attempt: int,
        stored: Sequence[StoredEntry] | None,
        journal: Journal,
        limit: int,
        encode: Callable[[tuple[Any, ...], dict[str, Any], int], str],
    ) -> None:
        self._job = job
        self._attempt = attempt
        self._journal = journal
        self._limit = limit
        self._encode = encode
        self.branches = Branches(journal.in_main_branch)
        self._replay = Replay(job, stored or ())
        self._read_at = time.monotonic()
        self._last_activity = self._read_at  # when the code last reached or ended an operation
        self._pending = PendingEntries(journal.write)
        self._busy_count = 0
        self._waits: list[JournalEntry] = []
        self._last_now: datetime | None = None
        self.forced_outcome: Suspended | Quarantined | Restarted | None = None
        """Outcome that ends the attempt early. Later results of the code are ignored."""

    # Steps

    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        retry: Retry | None = None,
        timeout: float | None = None,
    ) -> Any:
        if self.forced_outcome is not None:
            await self._refuse_to_continue()
        entry, stored = self._next_entry("step", name)
        branch = self.branches.current_branch()
        read = reader_of_function(fn)
        if stored is not None and not stored.is_open:
            if stored.error == durable_journal.ABANDONED_ERROR:
                await self._wait_until_cancelled()
            if stored.error is not None:
                raise durable_journal.step_failed(entry, stored.error)
            return read(stored.result)
        tries = 0 if stored is None else await self._resume_tries(entry, stored)
        while True:
            with self.busy():
                await self.flush()
                began = time.perf_counter()
                try:
                    return await self._run_step(entry, read, fn, args, kwargs, timeout, tries + 1)
                except StepRaised as failed:
                    error = failed.error
                    tries += 1
                    durable_journal.close_entry(entry, tries, began)
                    entry.error = codec.encode_error(error, self._attempt, "")
                    delay = (retry or SINGLE_ATTEMPT).delay_after(tries, error)
                    if delay is None:
                        self._pending.add_failed(entry, branch)
                        raise durable_journal.step_failed(entry, entry.error) from error
                except asyncio.CancelledError:
                    # If the code continues, it has cancelled the step itself. The entry keeps the step
                    # from running in a replay.
                    self._pending.add_failed(
                        durable_journal.abandoned_entry(entry, tries + 1, began), branch
                    )
                    raise
            await self._wait_or_leave(durable_journal.open_entry(entry, delay), delay)

    async def _resume_tries(self, entry: JournalEntry, stored: StoredEntry) -> int:
        """Wait until the next try of an open step is due. Return the number of tries so far."""
        if stored.error is not None:
            failed_attempt = codec.decode_error(stored.error.encode()).attempt
            if failed_attempt != self._attempt:
                # An earlier attempt tried the step and failed: this attempt has all tries again.
                return 0
        remaining = self._remaining_seconds(stored)
        if remaining is not None and remaining > 0:
            await self._wait_or_leave(entry, remaining, is_stored=True)
        return stored.tries

    async def _run_step(
        self,
        entry: JournalEntry,
        read: Reader,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        timeout: float | None,
        tries: int,
    ) -> Any:
        """Run a step's code and store its result, in the step's own transaction if it has opened one."""
        began = time.perf_counter()
        async with self._journal.step(entry) as step:
            try:
                value = await step.run(partial(fn, *args, **kwargs), timeout)
            except _ATTEMPT_ERRORS:
                raise
            except Exception as error:
                raise StepRaised(error) from error
            try:
                entry.result = codec.encode(value, entry, self._limit)
                # Return the value as a replay will read it. A result that cannot be read is not stored.
                value = read(entry.result)
            except (ArgumentError, ResultError) as error:
                raise ResultUnstorable(str(error)) from None
            durable_journal.close_entry(entry, tries, began)
            entry.error = None
            if step.has_transaction:
                await step.commit(entry)
            else:
                await self._pending.write([entry])
        return value

    async def _wait_until_cancelled(self) -> NoReturn:
        """Wait for the code to cancel this step again, as it did before: by a timeout or a lost race."""
        while True:
            await self._journal.pause(self._journal.inline_wait_seconds, idle=not self._busy_count)

    # Waiting

    async def sleep(self, seconds: float | None, until: datetime | None) -> None:
        if self.forced_outcome is not None:
            await self._refuse_to_continue()
        entry, stored = self._next_entry("sleep", "sleep")
        if stored is not None:
            remaining = self._remaining_seconds(stored)
            if remaining is not None and remaining > 0:
                await self._wait_or_leave(entry, remaining, is_stored=True)
            return
        if until is not None:
            entry.until = until.isoformat()
            remaining = (until - self._journal.now()).total_seconds()
        else:
            assert seconds is not None
            entry.seconds = remaining = seconds
        if remaining > 0:
            await self._wait_or_leave(entry, remaining)
        else:
            self._pending.add(entry)

    async def wait_signal(self, name: str, kind: Any, timeout: float | None, default: Any) -> Any:
        if self.forced_outcome is not None:
            await self._refuse_to_continue()
        entry, stored = self._next_entry("wait", name)
        read = reader_of_type(kind, f"the payload of signal {name!r}")
        if stored is not None and not stored.is_open:
            return durable_journal.signal_value(entry, stored.result, read, default)
        payload: str | None
        if stored is not None:
            payload = stored.payload if stored.has_signal else None
            remaining = self._remaining_seconds(stored)
        else:
            with self.busy():
                payload = await self._journal.read_signal(name)
            remaining = timeout
        if payload is None and (remaining is None or remaining > 0):
            payload = await self._wait_or_leave(
                durable_journal.open_entry(entry, timeout), remaining, is_stored=stored is not None
            )
        entry.is_open = False
        entry.seconds = None
        entry.result = payload
        if payload is None:
            # Written before the code continues: the signal may still arrive, and a later attempt must
            # not receive it here.
            entry.error = durable_journal.SIGNAL_TIMEOUT_ERROR
            with self.busy():
                await self._pending.write([entry])
        else:
            self._pending.add(entry)
        return durable_journal.signal_value(entry, payload, read, default)

    async def _wait_or_leave(
        self, entry: JournalEntry, delay: float | None, *, is_stored: bool = False
    ) -> str | None:
        """Wait `delay` seconds, or for a signal; return the signal's payload, or None after the delay.

        Usually the job is suspended instead, and this call does not return: the code runs again from its
        first line when the job is woken.
        """
        self._journal.check_no_transaction()
        inline_wait = self._journal.inline_wait_seconds
        entry.seconds = delay
        if self._is_only_branch and (delay is None or delay > inline_wait):
            # Let branches that were just started reach their first operation.
            await asyncio.sleep(0)
            if self._is_only_branch:
                await self._suspend([] if is_stored else [entry], [entry])
        if not is_stored:
            with self.busy():
                await self._pending.write([entry])
        self._waits.append(entry)
        try:
            return await self._wait_inline(entry, delay, inline_wait)
        finally:
            self._waits.remove(entry)
            self._last_activity = time.monotonic()

    async def _wait_inline(
        self, entry: JournalEntry, delay: float | None, inline_wait: float
    ) -> str | None:
        """Wait in the worker, and suspend the job once no branch is active and the wait is long."""
        deadline = math.inf if delay is None else time.monotonic() + delay
        while (remaining := deadline - time.monotonic()) > 0:
            await self._journal.pause(min(remaining, inline_wait), idle=not self._busy_count)
            if entry.kind == "wait":
                payload = await self._journal.read_signal(entry.name)
                if payload is not None:
                    return payload
            is_quiet = (
                not self._busy_count and time.monotonic() - self._last_activity >= inline_wait
            )
            if is_quiet and remaining > inline_wait:
                await self._suspend([], self._waits)
        return None

    async def _suspend(
        self, entries: Sequence[JournalEntry], waits: Sequence[JournalEntry]
    ) -> NoReturn:
        if self.forced_outcome is None:
            self.forced_outcome = Suspended((*self._pending.take(), *entries), tuple(waits))
        await self._journal.end_attempt()

    async def _refuse_to_continue(self) -> NoReturn:
        """Stop code that has caught the exception that ended its attempt.

        The pause keeps such code from blocking other jobs in a busy loop.
        """
        await self._journal.pause(1, idle=True)
        raise asyncio.CancelledError

    @property
    def _is_only_branch(self) -> bool:
        return self._journal.in_main_branch() and not self._busy_count and not self._waits

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Prevent suspension of the job while one of its branches is active."""
        self._busy_count += 1
        try:
            yield
        finally:
            self._busy_count -= 1
            self._last_activity = time.monotonic()

    async def restart(self, args: Mapping[str, Any]) -> NoReturn:
        self._check_allowed()
        self._journal.check_no_transaction()
        text = self._encode((), dict(args), self._limit)
        self.confirm_failures()
        # Signals that the code has received must be in the journal: the restart deletes those it finds.
        await self.flush()
        self.forced_outcome = Restarted(text)
        await self._journal.end_attempt()

    # Values

    def value(self, name: str, factory: Callable[[], Any]) -> Any:
        entry, stored = self._next_entry("value", name)
        if stored is not None:
            return codec.decode((stored.result or "null").encode())
        value = factory()
        entry.result = codec.encode(value, name, self._limit)
        self._pending.add(entry)
        return value

    def now(self) -> datetime:
        """Return the time. It never goes back within a job, also if the job moves to another worker."""

        def read_clock() -> str:
            now = self._journal.now().astimezone(UTC)
            return (now if self._last_now is None else max(now, self._last_now)).isoformat()

        self._last_now = datetime.fromisoformat(self.value("now", read_clock))
        return self._last_now

    def version(self, change: str) -> bool:
        self._check_allowed()
        self.confirm_failures()
        entry, applies = self._replay.version(change, in_main_branch=self._journal.in_main_branch())
        if entry is not None:
            self._pending.add(entry)
        return applies

    @property
    def is_replaying(self) -> bool:
        """True while the code repeats stored operations. Its progress and logs were written before."""
        return self._replay.is_replaying

    # Journal

    async def flush(self) -> None:
        """Write the pending entries, before anything happens that may depend on them."""
        await self._pending.flush()

    def confirm_failures(self) -> None:
        """Confirm failed steps before a durable operation that has no journal entry of its own.

        An operation inside a step confirms no failure: the step itself did so when it began.
        """
        if self._pending.has_failed and current_step.get() is None:
            self._pending.confirm_failures(self.branches.known_branch())

    async def end(self) -> None:
        """Check, after the code has returned, that the replay is complete. Write a pending wait."""
        self._check_allowed()
        try:
            self._replay.check_complete()
        except ReplayMismatch as error:
            self._quarantine(error)
            raise
        if self._pending.has_wait:
            await self.flush()

    # Shared

    def _next_entry(self, kind: EntryKind, name: str) -> tuple[JournalEntry, StoredEntry | None]:
        self._check_allowed()
        branch = self.branches.current_branch()
        self._last_activity = time.monotonic()
        if self._pending.has_failed:
            self._pending.confirm_failures(branch)
        try:
            return self._replay.next_entry(kind, name, branch)
        except ReplayMismatch as error:
            self._quarantine(error)
            raise

    def _check_allowed(self) -> None:
        if self.forced_outcome is not None:
            raise asyncio.CancelledError
        step = current_step.get()
        if step is not None:
            raise RotaError(
                f"{step.label} cannot contain steps, sleeps, waits or values: a step is retried as a "
                "whole; return from it first"
            )

    def _quarantine(self, error: ReplayMismatch) -> None:
        self.forced_outcome = Quarantined(codec.encode_error(error, self._attempt, ""))

    def _remaining_seconds(self, stored: StoredEntry) -> float | None:
        """Return the seconds until the wait of a stored entry ends; None if it has no end."""
        return (
            None
            if stored.remaining is None
            else stored.remaining - (time.monotonic() - self._read_at)
        )


_ATTEMPT_ERRORS = (ClaimLost, RetryLater, Requeue, ReplayMismatch)
"""Errors that apply to the whole attempt, also when they are raised inside a step."""

"""Journal entries that are not written yet. They are written together with the next entry.

`flush` writes them all; the durable functions call it before anything that could depend on an entry.

A failed step is written only when the code has handled the failure. Otherwise the failure ends the attempt,
and the next attempt runs the step again. `confirm_failures` is called when a durable operation begins. It
considers a failure handled if the operation can be a consequence of it:

    the operation is on the branch of the failed step, or on one that this branch was started from
    the operation is on a branch that was started after the failure
    the asyncio task of the failed step still runs, or has returned: it caught the error

A failure that leaves its task as an exception is therefore not confirmed by branches that were running
beside it: `gather(…, return_exceptions=True)` may still raise it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from weakref import WeakSet

from rota.model.journal import JournalEntry


class PendingEntries:
    def __init__(self, write: Callable[[Sequence[JournalEntry]], Awaitable[Any]]) -> None:
        self._write = write
        self._entries: list[JournalEntry] = []
        self._active_writes: list[asyncio.Future[None]] = []
        self._failed: list[_FailedStep] = []

    def add(self, entry: JournalEntry) -> None:
        self._entries.append(entry)

    def add_failed(self, entry: JournalEntry, branch: str) -> None:
        self._failed.append(_FailedStep(entry, branch))

    @property
    def has_failed(self) -> bool:
        """True if a step has failed and the failure is not confirmed yet."""
        return bool(self._failed)

    def confirm_failures(self, branch: str | None) -> None:
        """Confirm the failures that an operation on `branch` can be a consequence of.

        None is a branch without an operation so far.
        """
        for failed in list(self._failed):
            if failed.is_handled_by(branch):
                self._failed.remove(failed)
                self._entries.append(failed.entry)

    @property
    def has_wait(self) -> bool:
        return any(entry.kind == "wait" for entry in self._entries)

    async def write(self, entries: Sequence[JournalEntry]) -> None:
        pending = self.take()
        if not pending:
            await self._write(entries)
            return
        done = asyncio.get_running_loop().create_future()
        self._active_writes.append(done)
        try:
            await self._write([*pending, *entries])
        except BaseException:
            self._entries = pending + self._entries
            raise
        finally:
            self._active_writes.remove(done)
            done.set_result(None)

    async def flush(self) -> None:
        """Write all entries, and wait for those that another branch is writing."""
        while self._entries or self._active_writes:
            if self._entries:
                await self.write([])
            else:
                await asyncio.wait(self._active_writes)

    def take(self) -> list[JournalEntry]:
        entries, self._entries = self._entries, []
        return entries


class _FailedStep:
    """A step that failed in the current asyncio task."""

    __slots__ = ("_branch", "_task", "_tasks_before", "entry")

    def __init__(self, entry: JournalEntry, branch: str) -> None:
        self.entry = entry
        self._branch = branch
        self._task = asyncio.current_task()
        # Tasks that existed at the failure. Not needed on the job's own branch, "": a failure that leaves
        # that one ends the attempt.
        self._tasks_before = WeakSet(asyncio.all_tasks() if branch else ())

    def is_handled_by(self, branch: str | None) -> bool:
        if branch is not None and self._branch.startswith(branch):
            return True
        task = self._task
        if task is None or not task.done():
            return True
        if not self._branch:
            return False
        if asyncio.current_task() not in self._tasks_before:
            return True
        return not task.cancelled() and task.exception() is None

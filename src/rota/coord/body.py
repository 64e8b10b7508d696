"""A block that is cancelled when what it relies on is lost, and says so instead of "cancelled"."""

from __future__ import annotations

import asyncio
from typing import Any


class CancelScope:
    """Made when the block is entered, in the task that runs it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._cancels_before = self._task.cancelling() if self._task is not None else 0
        self._cancelled = False

    def cancel(self) -> None:
        """In the loop of the block; once."""
        if self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def finish(self, error: BaseException | None) -> bool:
        """Whether the block ended because we cancelled it, and for no other reason."""
        task, self._task = self._task, None
        if task is None or not self._cancelled:
            return False
        has_other_cancels = task.uncancel() > self._cancels_before
        return isinstance(error, asyncio.CancelledError) and not has_other_cancels

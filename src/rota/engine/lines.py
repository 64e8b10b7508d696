"""The lines of a job's code: its own, and the branches beside it (`asyncio.gather`, a TaskGroup).

A branch is an asyncio task. It is known by which one it is of those that its parent has begun, in the order
in which they first come to something: for branches that are begun together that is the order in which the
code has them, whoever of them is done first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from zlib import crc32

BRANCHED = 2**30
"""From here on calls are numbered that branches make."""


class Line:
    __slots__ = ("_branches", "key", "lines", "task")

    def __init__(self, lines: Lines, task: asyncio.Task[Any] | None, key: str) -> None:
        self.lines = lines
        self.task = task
        self.key = key
        self._branches = 0

    def branch(self, task: asyncio.Task[Any] | None) -> Line:
        self._branches += 1
        return Line(self.lines, task, f"{self.key}{self._branches}.")


_line: ContextVar[Line | None] = ContextVar("rota line", default=None)
"""Of the task this is, or of the one that has begun it."""


class Lines:
    def __init__(self, is_own: Callable[[], bool]) -> None:
        self._is_own = is_own
        self._own = Line(self, None, "")
        self._calls: Counter[str] = Counter()

    def here(self) -> str:
        """The line that this code is in: "" is the job's own, "2.1." the first branch of its second."""
        if self._is_own():
            return ""
        task = asyncio.current_task()
        line = _line.get()
        if line is None or line.lines is not self:
            line = self._own
        elif line.task is task:
            return line.key
        line = line.branch(task)
        _line.set(line)
        return line.key

    def known(self) -> str | None:
        """Return the key of the branch this code is on, or None if it has had no operation yet."""
        if self._is_own():
            return ""
        line = _line.get()
        if line is None or line.lines is not self or line.task is not asyncio.current_task():
            return None
        return line.key

    def call(self) -> int:
        """Which of the job's calls the next one here is: the same again, whatever others do meanwhile."""
        line = self.here()
        nth = self._calls[line]
        self._calls[line] += 1
        return nth if not line else BRANCHED + crc32(f"{line}{nth}".encode()) % BRANCHED

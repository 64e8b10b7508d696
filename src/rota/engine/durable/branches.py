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

BRANCH_CALL_OFFSET = 2**30
"""From here on calls are numbered that branches make."""


class Branch:
    __slots__ = ("_child_count", "branches", "key", "task")

    def __init__(self, branches: Branches, task: asyncio.Task[Any] | None, key: str) -> None:
        self.branches = branches
        self.task = task
        self.key = key
        self._child_count = 0

    def add_child(self, task: asyncio.Task[Any] | None) -> Branch:
        self._child_count += 1
        return Branch(self.branches, task, f"{self.key}{self._child_count}.")


_current: ContextVar[Branch | None] = ContextVar("rota line", default=None)
"""Of the task this is, or of the one that has begun it."""


class Branches:
    def __init__(self, in_main_branch: Callable[[], bool]) -> None:
        self._in_main_branch = in_main_branch
        self._main = Branch(self, None, "")
        self._call_counts: Counter[str] = Counter()

    def current_branch(self) -> str:
        """The line that this code is in: "" is the job's own, "2.1." the first branch of its second."""
        if self._in_main_branch():
            return ""
        task = asyncio.current_task()
        branch = _current.get()
        if branch is None or branch.branches is not self:
            branch = self._main
        elif branch.task is task:
            return branch.key
        branch = branch.add_child(task)
        _current.set(branch)
        return branch.key

    def known_branch(self) -> str | None:
        """Return the key of the branch this code is on, or None if it has had no operation yet."""
        if self._in_main_branch():
            return ""
        branch = _current.get()
        if (
            branch is None
            or branch.branches is not self
            or branch.task is not asyncio.current_task()
        ):
            return None
        return branch.key

    def next_call_number(self) -> int:
        """Which of the job's calls the next one here is: the same again, whatever others do meanwhile."""
        branch = self.current_branch()
        nth = self._call_counts[branch]
        self._call_counts[branch] += 1
        return (
            nth
            if not branch
            else BRANCH_CALL_OFFSET + crc32(f"{branch}{nth}".encode()) % BRANCH_CALL_OFFSET
        )

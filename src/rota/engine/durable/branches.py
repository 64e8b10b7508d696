"""Branches of a job's code: the main branch, and concurrent ones (`asyncio.gather`, a TaskGroup).

A branch is an asyncio task. Its key is its number among the branches that its parent has started, in the
order in which they reach their first durable operation. For branches that are started together this is
their order in the code, regardless of which one finishes first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from zlib import crc32

BRANCH_CALL_OFFSET = 2**30
"""Lowest number of a child call that is made outside the main branch."""


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


_current: ContextVar[Branch | None] = ContextVar("rota branch", default=None)
"""Branch of the current asyncio task, or of the task that started it."""


class Branches:
    def __init__(self, in_main_branch: Callable[[], bool]) -> None:
        self._in_main_branch = in_main_branch
        self._main = Branch(self, None, "")
        self._call_counts: Counter[str] = Counter()

    def current_branch(self) -> str:
        """Return the key of the branch this code is on; register the branch if it is new.

        "" is the main branch, "2.1." the first branch of its second branch.
        """
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
        """Return the number of the next child call. It is the same in every replay of this branch."""
        branch = self.current_branch()
        nth = self._call_counts[branch]
        self._call_counts[branch] += 1
        return (
            nth
            if not branch
            else BRANCH_CALL_OFFSET + crc32(f"{branch}{nth}".encode()) % BRANCH_CALL_OFFSET
        )

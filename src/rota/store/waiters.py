"""Who wants to know: waiters for an outcome, and news that a queue has work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.store.arrays import of_ints
from rota.store.query import Query

NEWS = "rota.wake"
"""The channel of news, in schema `rota`; its payload is a queue's name, or a word that starts with !."""

CANCEL = "!cancel"
"""Somebody wishes that a worker stops a job it holds."""

DRAIN = "!drain"
"""Somebody wishes that a worker leaves."""

WORKER = "!worker"
"""There is a new worker, to have an eye on."""

MISSED = "!missed"
"""What a listener hears, from nobody, after a time in which it may have missed something."""

SCHEDULE = "!schedule"
"""A schedule was made or changed: it may be due earlier than anybody thinks."""

LOST = "!lost"
"""There are suspects: jobs that were lost with a worker."""


def register(listener: str, jobs: Sequence[int]) -> Query[int]:
    """Ask to be told. Answers those that are news to it and have not ended yet."""
    return Query("waiter/register", {"listener": listener, "jobs": of_ints(jobs)}, int)


def forget(listener: str, jobs: Sequence[int]) -> Query[Any]:
    return Query("waiter/forget", {"listener": listener, "jobs": of_ints(jobs)}, _nothing)


def tell(jobs: Sequence[int]) -> Query[Any]:
    """Tell whoever waits for these jobs; only after their outcomes have committed."""
    return Query("waiter/tell", {"jobs": of_ints(jobs)}, _nothing)


def notify(channel: str, words: Sequence[str]) -> Query[Any]:
    return Query("waiter/notify", {"channel": channel, "words": words}, _nothing)


def _nothing(*_: Any) -> None:
    return None

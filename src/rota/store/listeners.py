"""Who wants to know: waiters for an outcome, and news that a queue has work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.store.array_literals import int_array
from rota.store.query import Query

WAKE_CHANNEL = "rota.wake"
"""The channel of news, in schema `rota`; its payload is a queue's name, or a word that starts with !."""

CANCEL_REQUESTED = "!cancel"
"""Somebody wishes that a worker stops a job it holds."""

DRAIN_REQUESTED = "!drain"
"""Somebody wishes that a worker leaves."""

WORKER_REGISTERED = "!worker"
"""There is a new worker, to have an eye on."""

MAY_HAVE_MISSED = "!missed"
"""What a listener hears, from nobody, after a time in which it may have missed something."""

SCHEDULE_CHANGED = "!schedule"
"""A schedule was made or changed: it may be due earlier than anybody thinks."""

JOBS_LOST = "!lost"
"""There are suspects: jobs that were lost with a worker."""


def register(listener: str, jobs: Sequence[int]) -> Query[int]:
    """Ask to be told. Answers those that are news to it and have not ended yet."""
    return Query("waiter/register", {"listener": listener, "jobs": int_array(jobs)}, int)


def unregister(listener: str, jobs: Sequence[int]) -> Query[Any]:
    return Query("waiter/forget", {"listener": listener, "jobs": int_array(jobs)}, _no_row)


def notify_waiters(jobs: Sequence[int]) -> Query[Any]:
    """Tell whoever waits for these jobs; only after their outcomes have committed."""
    return Query("waiter/tell", {"jobs": int_array(jobs)}, _no_row)


def notify(channel: str, payloads: Sequence[str]) -> Query[Any]:
    return Query("waiter/notify", {"channel": channel, "words": payloads}, _no_row)


def _no_row(*_: Any) -> None:
    return None

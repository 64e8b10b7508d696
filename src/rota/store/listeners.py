"""Notifications: clients that wait for outcomes, and workers that wait for jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.store.array_literals import int_array
from rota.store.query import Query, no_row, statement

WAKE_CHANNEL = "rota.wake"
"""Notification channel of schema `rota`. The payload is a queue's name, or an event that begins with !."""

CANCEL_REQUESTED = "!cancel"
"""An operator or client has asked to cancel a running job."""

DRAIN_REQUESTED = "!drain"
"""A worker was asked to drain."""

WORKER_REGISTERED = "!worker"
"""A worker has registered and has to be observed."""

MAY_HAVE_MISSED = "!missed"
"""Event that a listener raises itself after an interruption in which notifications may have been lost."""

SCHEDULE_CHANGED = "!schedule"
"""A schedule was created or changed and may be due earlier than expected."""

JOBS_LOST = "!lost"
"""There are suspects: jobs that were running when their worker was lost."""


def register(listener: str, jobs: Sequence[int]) -> Query[int]:
    """Register a listener for jobs. Return those that are newly registered and have not ended yet."""
    return Query("listener/register", {"listener": listener, "jobs": int_array(jobs)}, int)


def unregister(listener: str, jobs: Sequence[int]) -> Query[Any]:
    return Query("listener/unregister", {"listener": listener, "jobs": int_array(jobs)}, no_row)


def notify_waiters(jobs: Sequence[int]) -> Query[Any]:
    """Notify the clients that wait for these jobs. Call this only after their outcomes have committed."""
    return Query("listener/notify_waiters", {"jobs": int_array(jobs)}, no_row)


@statement("listener/notify", no_row)
def notify(channel: str, payloads: Sequence[str]) -> None: ...

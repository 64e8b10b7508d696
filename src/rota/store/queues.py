"""Queries for queues: pauses, and jobs that no worker can run.

Each claim reads the pauses, so a pause needs no notification.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from rota.model.document import Mark
from rota.model.explanation import unserved_reason
from rota.store.query import Query, statement

MAX_JOBS_PER_LANE = 100
"""Number of jobs that are checked for a worker, at the front of each queue and priority."""


class PauseRow(msgspec.Struct, frozen=True):
    """A paused queue, from which no job is claimed. Operator and reason are absent for viewers."""

    queue: str
    since: datetime
    operator: Annotated[str, Mark.HIDDEN]
    reason: Annotated[str, Mark.HIDDEN]


class UnservedTaskRow(msgspec.Struct, frozen=True):
    """Jobs of one queue and task that no active worker can run."""

    queue: str
    task: str
    jobs: int
    """Lower bound of the number of jobs."""
    first_run: int
    """Run of the first of these jobs."""
    created: datetime | None
    serving_workers: int
    """Workers that serve the queue but do not know the task."""

    @property
    def reason(self) -> str:
        return unserved_reason(self.serving_workers)


@statement("queue/pause", bool)
def pause(queue: str, operator: str, reason: str) -> None: ...


@statement("queue/resume", bool)
def resume(queue: str) -> None: ...


@statement("queue/list_paused", PauseRow)
def list_paused() -> None: ...


def unserved_tasks() -> Query[UnservedTaskRow]:
    """Return the tasks at the front of their queues that no active worker can run."""
    params = {"jobs_per_lane": MAX_JOBS_PER_LANE}
    return Query("queue/unserved_tasks", params, UnservedTaskRow)

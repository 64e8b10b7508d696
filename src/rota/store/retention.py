"""Retention: find and remove runs that ended long enough ago, one bounded batch per transaction.

    try_lock   take the lock that all other queries need
    find       find removable runs, upwards from an id
    remove     remove the runs found that are unchanged and not locked
    clean      remove other old rows: alerts, audit rows, free locks

Finding changes nothing, and removal decides under locks; therefore they are separate.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model.retention import FOREVER, MAX_SECONDS, Retention
from rota.store.advisory_locks import RETENTION, key_of
from rota.store.query import Params, Query, statement

BATCH_JOBS = 2000
"""Jobs in one batch. A larger run is a batch of its own: runs are removed as a whole."""


class PrunableRow(msgspec.Struct, frozen=True):
    """Number of runs and jobs with this queue and outcome."""

    queue: Annotated[str, Meta(description="null: jobs of several queues.")] | None
    outcome: str
    runs: int
    jobs: int


class PrunableRuns(msgspec.Struct, frozen=True):
    position: int
    """Id up to which there is nothing more to remove for now."""
    has_more: bool
    runs: str
    """Array literal, passed back to `remove` unchanged."""
    ended: str
    rows: list[PrunableRow]

    def __bool__(self) -> bool:
        return bool(self.rows)


PAGE_ROWS = 1000
"""Rows of each kind that one `clean` checks."""


class CleanResult(msgspec.Struct, frozen=True):
    """Number of rows removed, and the position to continue from."""

    alerts: int = 0
    audit: int = 0
    refusals: int = 0
    rate_limits: int = 0
    locks: int = 0
    schedules: int = 0
    last_rate_limit: str = ""
    last_lock: str = ""
    last_permit: int = -1

    @property
    def total(self) -> int:
        records = self.alerts + self.audit + self.refusals + self.rate_limits
        return records + self.locks + self.schedules


FROM_START = CleanResult()


def try_lock(schema: str, worker: int | None = None) -> Query[bool]:
    """Return True if this worker has the lock. Only the worker registered longest may take it.

    `worker` is None for a single request of an operator.
    """
    params = {"worker": worker, "namespace": RETENTION, "key": key_of(schema)}
    return Query("retention/try_lock", params, bool)


def _read_found(position: int, more: bool, runs: str, ended: str, lines: bytes) -> PrunableRuns:
    return PrunableRuns(
        position, more, runs, ended, msgspec.json.decode(lines, type=list[PrunableRow])
    )


@statement("retention/find", _read_found)
def find(retention: Retention, after: int, limit: int = BATCH_JOBS) -> Params:
    """Find runs that may be removed, upwards from an id."""
    rules = {"": retention.default, **retention.queues}
    ages = {
        queue: {kind: _age_limit(age) for kind, age in rule.items()}
        for queue, rule in rules.items()
    }
    return {"retention": msgspec.json.encode(ages).decode(), "min_age": retention.min_age}


def remove(found: PrunableRuns) -> Query[PrunableRow]:
    """Remove the runs found, unless they changed or are locked. Return the counts removed."""
    return Query("retention/remove", {"runs": found.runs, "ended": found.ended}, PrunableRow)


def clean(
    alert_retention: float,
    audit_retention: float,
    idle_retention: float,
    after: CleanResult,
    limit: int = PAGE_ROWS,
) -> Query[CleanResult]:
    """Remove old rows besides runs.

    Retention times are in seconds: of closed alerts, of audit rows, and of free locks and ended
    schedules.
    """
    params = {
        "alert_retention": min(alert_retention, MAX_SECONDS),
        "audit_retention": min(audit_retention, MAX_SECONDS),
        "idle_retention": min(idle_retention, MAX_SECONDS),
        "last_rate_limit": after.last_rate_limit,
        "last_lock": after.last_lock,
        "last_permit": after.last_permit,
        "limit": limit,
    }
    return Query("retention/clean", params, CleanResult)


def _age_limit(seconds: float) -> float | str:
    return "infinity" if seconds == FOREVER else seconds

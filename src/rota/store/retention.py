"""Retention: finding runs that ended long enough ago, and removing them, a bounded batch a transaction.

    turn     whose it is to do so; nothing else may be done without it
    find     what may go, going up from an id
    remove   what was found, as far as it still is as it was and nobody has a hand on it
    tidy     what is old beside runs

The two are apart so that looking changes nothing, and so that what is removed is decided under locks.
"""

from __future__ import annotations

import msgspec

from rota.model.retention import FOREVER, MAX_SECONDS, Retention
from rota.store.advisory_locks import RETENTION, key_of
from rota.store.query import Query

BATCH_JOBS = 2000
"""Jobs in one batch. A larger run is a batch by itself: runs go whole."""


class PrunableRow(msgspec.Struct, frozen=True):
    """So many runs of this queue and outcome, with so many jobs; no queue: their jobs are in several."""

    queue: str | None
    outcome: str
    runs: int
    jobs: int


class PrunableRuns(msgspec.Struct, frozen=True):
    position: int
    """The id up to which there is nothing more to find for now."""
    has_more: bool
    runs: str
    """As an array literal, which goes back as it came."""
    ended: str
    rows: list[PrunableRow]

    def __bool__(self) -> bool:
        return bool(self.rows)


PAGE_ROWS = 1000
"""Rows of each kind that are looked at beside runs."""


class CleanResult(msgspec.Struct, frozen=True):
    """How much went, and where to go on."""

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
    """Whether it is this worker's turn; None: somebody asks for once."""
    params = {"worker": worker, "space": RETENTION, "key": key_of(schema)}
    return Query("retention/turn", params, bool)


def find(retention: Retention, after: int, limit: int = BATCH_JOBS) -> Query[PrunableRuns]:
    """What may go, going up from an id."""
    rules = {"": retention.default, **retention.queues}
    ages = {
        queue: {kind: _age_limit(age) for kind, age in rule.items()}
        for queue, rule in rules.items()
    }
    return Query(
        "retention/find",
        {
            "keep": msgspec.json.encode(ages).decode(),
            "shortest": retention.min_age,
            "after": after,
            "most": limit,
        },
        _read_found,
    )


def remove(found: PrunableRuns) -> Query[PrunableRow]:
    """Remove what was found, where nothing stands against it. Answers what went."""
    return Query("retention/remove", {"runs": found.runs, "ended": found.ended}, PrunableRow)


def clean(
    alert_retention: float,
    audit_retention: float,
    idle_retention: float,
    after: CleanResult,
    limit: int = PAGE_ROWS,
) -> Query[CleanResult]:
    """Seconds for which alerts that are over, what was done by hand and free locks are kept."""
    params = {
        "alerts": min(alert_retention, MAX_SECONDS),
        "audit": min(audit_retention, MAX_SECONDS),
        "free": min(idle_retention, MAX_SECONDS),
        "rate": after.last_rate_limit,
        "lock": after.last_lock,
        "slot": after.last_permit,
        "most": limit,
    }
    return Query("retention/tidy", params, CleanResult)


def _age_limit(seconds: float) -> float | str:
    return "infinity" if seconds == FOREVER else seconds


def _read_found(position: int, more: bool, runs: str, ended: str, lines: bytes) -> PrunableRuns:
    return PrunableRuns(
        position, more, runs, ended, msgspec.json.decode(lines, type=list[PrunableRow])
    )

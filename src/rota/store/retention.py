"""Retention: finding runs that ended long enough ago, and removing them, a bounded batch a transaction.

    turn     whose it is to do so; nothing else may be done without it
    find     what may go, going up from an id
    remove   what was found, as far as it still is as it was and nobody has a hand on it
    tidy     what is old beside runs

The two are apart so that looking changes nothing, and so that what is removed is decided under locks.
"""

from __future__ import annotations

import msgspec

from rota.model.retention import FOREVER, LONGEST, Keep
from rota.store.advisory import RETENTION, key_of
from rota.store.query import Query

MOST = 2000
"""Jobs in one batch. A larger run is a batch by itself: runs go whole."""


class Line(msgspec.Struct, frozen=True):
    """So many runs of this queue and outcome, with so many jobs; no queue: their jobs are in several."""

    queue: str | None
    outcome: str
    runs: int
    jobs: int


class Found(msgspec.Struct, frozen=True):
    position: int
    """The id up to which there is nothing more to find for now."""
    more: bool
    runs: str
    """As an array literal, which goes back as it came."""
    ended: str
    lines: list[Line]

    def __bool__(self) -> bool:
        return bool(self.lines)


PAGE = 1000
"""Rows of each kind that are looked at beside runs."""


class Tidied(msgspec.Struct, frozen=True):
    """How much went, and where to go on."""

    alerts: int = 0
    audit: int = 0
    refusals: int = 0
    rates: int = 0
    locks: int = 0
    schedules: int = 0
    rate: str = ""
    lock: str = ""
    slot: int = -1

    @property
    def gone(self) -> int:
        beside = self.alerts + self.audit + self.refusals + self.rates
        return beside + self.locks + self.schedules


FROM_THE_FIRST = Tidied()


def turn(schema: str, worker: int | None = None) -> Query[bool]:
    """Whether it is this worker's turn; None: somebody asks for once."""
    params = {"worker": worker, "space": RETENTION, "key": key_of(schema)}
    return Query("retention/turn", params, bool)


def find(keep: Keep, after: int, most: int = MOST) -> Query[Found]:
    """What may go, going up from an id."""
    rules = {"": keep.default, **keep.queues}
    ages = {queue: {kind: _age(age) for kind, age in rule.items()} for queue, rule in rules.items()}
    return Query(
        "retention/find",
        {
            "keep": msgspec.json.encode(ages).decode(),
            "shortest": keep.shortest,
            "after": after,
            "most": most,
        },
        _found,
    )


def remove(found: Found) -> Query[Line]:
    """Remove what was found, where nothing stands against it. Answers what went."""
    return Query("retention/remove", {"runs": found.runs, "ended": found.ended}, Line)


def tidy(
    alerts: float, audit: float, free: float, after: Tidied, most: int = PAGE
) -> Query[Tidied]:
    """Seconds for which alerts that are over, what was done by hand and free locks are kept."""
    params = {
        "alerts": min(alerts, LONGEST),
        "audit": min(audit, LONGEST),
        "free": min(free, LONGEST),
        "rate": after.rate,
        "lock": after.lock,
        "slot": after.slot,
        "most": most,
    }
    return Query("retention/tidy", params, Tidied)


def _age(seconds: float) -> float | str:
    return "infinity" if seconds == FOREVER else seconds


def _found(position: int, more: bool, runs: str, ended: str, lines: bytes) -> Found:
    return Found(position, more, runs, ended, msgspec.json.decode(lines, type=list[Line]))

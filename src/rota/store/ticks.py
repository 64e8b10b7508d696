"""The ticks of schedules: which are due, what was started for each, and where their schedules go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.model.schedule import Decision, Policy, Position
from rota.model.timetable import Timetable
from rota.store.query import Query

AT_ONCE = 200
"""Schedules seen to in one transaction."""


class Due(msgspec.Struct, frozen=True):
    """A schedule that is due, under lock."""

    name: str
    kind: str
    target: str
    input: bytes
    cron: str | None
    tz: str
    every: float | None
    at: datetime | None
    overlap: Any
    catch_up: Any
    at_most: int
    grace: float | None
    jitter: float
    ends: datetime | None
    max_runs: int | None
    pause_after: int | None
    queue: str | None
    anchor: datetime
    next: datetime | None
    queued: datetime | None
    ticks: int
    runs: int
    run: int | None
    now: datetime

    @property
    def timetable(self) -> Timetable:
        return Timetable(self.cron, self.tz, self.every, self.at)

    @property
    def policy(self) -> Policy:
        return Policy(
            self.overlap,
            self.catch_up,
            self.at_most,
            self.grace,
            self.jitter,
            None,
            self.ends,
            self.max_runs,
            self.pause_after,
        )

    def position(self, busy: bool) -> Position:
        return Position(self.next, self.anchor, self.queued, self.runs, busy)


class Standing(msgspec.Struct, frozen=True):
    """How a schedule under lock is doing."""

    name: str
    paused: bool
    """Just now: it has failed too often."""
    open: list[int]
    """Its runs that have not ended, apart from what was backfilled."""


class Mark(msgspec.Struct, frozen=True):
    """What is written down of a tick."""

    schedule: str
    tick: datetime
    number: int
    state: str
    why: str | None
    backfilled: bool = False


class Moved(msgspec.Struct, frozen=True):
    """Where a schedule goes on."""

    due: Due
    decision: Decision
    ticks: int
    runs: int
    last: datetime | None
    run: int | None
    missed: int


class Unsettled(msgspec.Struct, frozen=True):
    ended: list[str]
    """Schedules with runs that have ended, and nobody has noted it."""
    open: bool
    """Whether there are runs at all whose end is not noted."""


# When to look


def next_due(targets: Sequence[str], others: Sequence[str] = ()) -> Query[float | None]:
    """In how many seconds. `others`: schedules that are left to others."""
    params = {"targets": list(targets), "others": list(others)}
    return Query("tick/next", params, lambda rest: rest)


def names_due(
    targets: Sequence[str], others: Sequence[str] = (), limit: int = AT_ONCE
) -> Query[str]:
    params = {"targets": list(targets), "others": list(others), "limit": limit}
    return Query("tick/names", params, str)


# In one transaction


def hurry() -> Query[Any]:
    return Query("tick/hurry", {}, lambda *_: None)


def due(
    targets: Sequence[str],
    others: Sequence[str] = (),
    name: str | None = None,
    limit: int = AT_ONCE,
) -> Query[Due]:
    params = {
        "targets": list(targets),
        "others": list(others),
        "names": None if name is None else [name],
        "limit": limit,
    }
    return Query("tick/due", params, Due)


def settle(names: Sequence[str]) -> Query[Standing]:
    return Query("tick/settle", {"names": list(names)}, Standing)


def put_off(whys: Mapping[str, str | None], seconds: float) -> Query[Any]:
    params = {"names": list(whys), "whys": list(whys.values()), "seconds": seconds}
    return Query("tick/put_off", params, lambda: None)


def mark(
    marks: Sequence[Mark], who: tuple[str, int], at: datetime | None = None
) -> Query[tuple[str, datetime]]:
    """Answers those that were not there. `at`: when they were seen to; None: now."""
    params = {
        **_columns(marks, who, at),
        "numbers": [each.number for each in marks],
        "backfilled": [each.backfilled for each in marks],
    }
    return Query("tick/mark", params, lambda name, tick: (name, tick))


def restate(marks: Sequence[Mark], who: tuple[str, int], at: datetime) -> Query[Any]:
    return Query("tick/restate", _columns(marks, who, at), lambda: None)


def _columns(marks: Sequence[Mark], who: tuple[str, int], at: datetime | None) -> dict[str, Any]:
    return {
        "at": at,
        "names": [each.schedule for each in marks],
        "ticks": [each.tick for each in marks],
        "states": [each.state for each in marks],
        "whys": [each.why for each in marks],
        "host": who[0],
        "pid": who[1],
    }


def started(
    runs: Sequence[tuple[str, datetime, int]],
    who: tuple[str, int],
    at: datetime | None = None,
    *,
    backfilled: bool = False,
) -> Query[Any]:
    params = {
        "at": at,
        "names": [name for name, _, _ in runs],
        "ticks": [tick for _, tick, _ in runs],
        "runs": [run for _, _, run in runs],
        "host": who[0],
        "pid": who[1],
        "backfilled": backfilled,
    }
    return Query("tick/started", params, lambda: None)


def advance(moved: Sequence[Moved]) -> Query[int]:
    params = {
        "names": [each.due.name for each in moved],
        "olds": [each.due.next for each in moved],
        "waits": [each.due.queued for each in moved],
        "nexts": [each.decision.next for each in moved],
        "dues": [each.decision.due for each in moved],
        "queueds": [each.decision.queued for each in moved],
        "ticks": [each.ticks for each in moved],
        "runs": [each.runs for each in moved],
        "lasts": [each.last for each in moved],
        "last_runs": [each.run for each in moved],
        "missed": [each.missed for each in moved],
    }
    return Query("tick/advance", params, int)


# Afterwards


def open_ones(limit: int = AT_ONCE) -> Query[Unsettled]:
    return Query("tick/open", {"limit": limit}, Unsettled)


def hold(names: Sequence[str]) -> Query[str]:
    return Query("tick/hold", {"names": list(names)}, str)

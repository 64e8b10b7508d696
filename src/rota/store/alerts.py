"""Alerts as rows: open once for what they are about, closed when it is no longer so.

What is noticed by whom it happens to is opened, closed and settled as it comes. What is found by looking at
the fleet is found in rounds, each of them one instance's, and written down by `judge`, all or nothing. What
is to be told of them to the world outside is on the rows, too: `take` and `told`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.model import sights
from rota.model.judging import Decision, Open
from rota.model.rules import JUDGED
from rota.store.query import Query


class Opened(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    fresh: bool
    """It was not open before."""


class Closed(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    here: bool = True
    """By this very statement."""


def open_(alerts: Sequence[tuple[str, str, str, int | None]], host: str, pid: int) -> Query[Opened]:
    """`alerts`: kind, subject, message, and the token of the hold it is about."""
    kinds, subjects, messages, tokens = _columns(alerts, 4)
    params = {"kinds": kinds, "subjects": subjects, "messages": messages, "tokens": tokens}
    return Query("alert/raise", {**params, "host": host, "pid": pid}, Opened)


def close(alerts: Sequence[tuple[str, str, int | None]]) -> Query[Closed]:
    kinds, subjects, tokens = _columns(alerts, 3)
    return Query("alert/clear", {"kinds": kinds, "subjects": subjects, "tokens": tokens}, Closed)


def settle(known: Sequence[tuple[str, str]] = ()) -> Query[Closed]:
    """`known`: kind and subject of those one believes to be open."""
    kinds, subjects = _columns(known, 2)
    return Query("alert/settle", {"kinds": kinds, "subjects": subjects}, Closed)


# Rounds


class Turn(msgspec.Struct, frozen=True):
    round: int | None
    """None: it is not one's turn."""
    memory: bytes | None
    now: datetime
    due: bool
    """Somebody is to be told of an alert."""


class Changed(msgspec.Struct, frozen=True):
    raised: bool
    """Else it was closed."""
    kind: str
    subject: str
    message: str


def turn(every: float) -> Query[Turn]:
    """`every`: seconds from one round to the next, whoever makes it."""
    return Query("alert/turn", {"every": every}, Turn)


def heads() -> Query[sights.Head]:
    return Query("alert/heads", {}, sights.Head)


def dead() -> Query[sights.Dead]:
    return Query("alert/dead", {}, sights.Dead)


def alive() -> Query[sights.Alive]:
    return Query("alert/alive", {}, sights.Alive)


def late(seconds: float) -> Query[sights.Late]:
    return Query("alert/late", {"late": seconds}, sights.Late)


def failing(failures: int) -> Query[sights.Failing]:
    return Query("alert/failing", {"failures": failures}, sights.Failing)


def quarantined() -> Query[sights.Quarantined]:
    return Query("alert/quarantine", {}, sights.Quarantined)


def refused(within: float) -> Query[sights.Refusals]:
    return Query("alert/refused", {"within": within}, sights.Refusals)


def server() -> Query[sights.Server]:
    return Query("alert/server", {}, sights.Server)


def opened() -> Query[Open]:
    """Those that are judged in rounds."""
    return Query("alert/open", {"kinds": list(JUDGED)}, Open)


def judge(
    round: int, decision: Decision, memory: Mapping[str, Any], host: str, pid: int
) -> Query[Changed]:
    """No row, also if a later round has begun."""
    kinds, subjects, messages = _columns(
        [(each.kind, each.subject, each.message) for each in decision.raised], 3
    )
    said, words = _columns(decision.said, 2)
    return Query(
        "alert/judge",
        {
            "round": round,
            "kinds": kinds,
            "subjects": subjects,
            "messages": messages,
            "said": said,
            "words": words,
            "calmed": decision.calmed,
            "closed": decision.closed,
            "memory": msgspec.json.encode(memory).decode(),
            "host": host,
            "pid": pid,
        },
        Changed,
    )


def refuse(host: str, pid: int, jobs: int) -> Query[Any]:
    """Note completions that were refused."""
    return Query("alert/refuse", {"host": host, "pid": pid, "jobs": jobs}, lambda: None)


# What is told to the world outside


class Letter(msgspec.Struct, frozen=True):
    """An alert of which somebody is to be told."""

    id: int
    kind: str
    subject: str
    message: str
    raised: datetime
    cleared: datetime | None
    host: str
    pid: int
    closed_by: str | None
    told: list[str]
    tries: int
    now: datetime


def take(limit: int, hold: float) -> Query[Letter]:
    """`hold`: seconds after which another takes them, unless it was said what came of it."""
    return Query("alert/take", {"limit": limit, "hold": hold}, Letter)


def told(letter: Letter, told: Sequence[str], pause: float | None) -> Query[Any]:
    """`pause`: seconds until the rest is tried again; None: that was all."""
    params = {"id": letter.id, "told": list(told), "cleared": letter.cleared, "pause": pause}
    return Query("alert/told", params, lambda: None)


# By hand


class Tally(msgspec.Struct, frozen=True):
    kind: str
    alerts: int
    acknowledged: int


def tally() -> Query[Tally]:
    """Those that are open, by kind."""
    return Query("alert/tally", {}, Tally)


def acknowledge(kind: str, subject: str | None, seconds: float, who: str) -> Query[Closed]:
    params = {"kind": kind, "subject": subject, "seconds": seconds, "who": who}
    return Query("alert/acknowledge", params, Closed)


def dismiss(kind: str, subject: str | None, who: str) -> Query[Closed]:
    return Query("alert/dismiss", {"kind": kind, "subject": subject, "who": who}, Closed)


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [[row[column] for row in rows] for column in range(width)]

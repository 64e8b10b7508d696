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

from rota.model import alert_decision
from rota.model.alert_decision import AlertDecision, OpenAlert
from rota.model.alert_rules import EVALUATED_KINDS
from rota.store.query import Query


class OpenedAlert(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    is_new: bool
    """It was not open before."""


class ClosedAlert(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    by_this_call: bool = True
    """By this very statement."""


def raise_alerts(
    alerts: Sequence[tuple[str, str, str, int | None]], host: str, pid: int
) -> Query[OpenedAlert]:
    """`alerts`: kind, subject, message, and the token of the hold it is about."""
    kinds, subjects, messages, tokens = _columns(alerts, 4)
    params = {"kinds": kinds, "subjects": subjects, "messages": messages, "tokens": tokens}
    return Query("alert/raise", {**params, "host": host, "pid": pid}, OpenedAlert)


def clear_alerts(alerts: Sequence[tuple[str, str, int | None]]) -> Query[ClosedAlert]:
    kinds, subjects, tokens = _columns(alerts, 3)
    return Query(
        "alert/clear", {"kinds": kinds, "subjects": subjects, "tokens": tokens}, ClosedAlert
    )


def clear_resolved(known: Sequence[tuple[str, str]] = ()) -> Query[ClosedAlert]:
    """`known`: kind and subject of those one believes to be open."""
    kinds, subjects = _columns(known, 2)
    return Query("alert/settle", {"kinds": kinds, "subjects": subjects}, ClosedAlert)


# Rounds


class RoundStart(msgspec.Struct, frozen=True):
    round: int | None
    """None: it is not one's turn."""
    memory: bytes | None
    now: datetime
    has_deliveries: bool
    """Somebody is to be told of an alert."""


class ChangedAlert(msgspec.Struct, frozen=True):
    raised: bool
    """Else it was closed."""
    kind: str
    subject: str
    message: str


def begin_round(interval: float) -> Query[RoundStart]:
    """`every`: seconds from one round to the next, whoever makes it."""
    return Query("alert/turn", {"every": interval}, RoundStart)


def queue_heads() -> Query[alert_decision.QueueHead]:
    return Query("alert/heads", {}, alert_decision.QueueHead)


def dead_workers() -> Query[alert_decision.DeadWorker]:
    return Query("alert/dead", {}, alert_decision.DeadWorker)


def live_workers() -> Query[alert_decision.LiveWorker]:
    return Query("alert/alive", {}, alert_decision.LiveWorker)


def late_schedules(late_seconds: float) -> Query[alert_decision.LateSchedule]:
    return Query("alert/late", {"late": late_seconds}, alert_decision.LateSchedule)


def failing_schedules(min_failures: int) -> Query[alert_decision.FailingSchedule]:
    return Query("alert/failing", {"failures": min_failures}, alert_decision.FailingSchedule)


def quarantined_jobs() -> Query[alert_decision.QuarantinedJobs]:
    return Query("alert/quarantine", {}, alert_decision.QuarantinedJobs)


def refused_outcomes(window_seconds: float) -> Query[alert_decision.RefusedOutcomes]:
    return Query("alert/refused", {"within": window_seconds}, alert_decision.RefusedOutcomes)


def server_load() -> Query[alert_decision.ServerLoad]:
    return Query("alert/server", {}, alert_decision.ServerLoad)


def list_open() -> Query[OpenAlert]:
    """Those that are judged in rounds."""
    return Query("alert/open", {"kinds": list(EVALUATED_KINDS)}, OpenAlert)


def write_round(
    round: int, decision: AlertDecision, memory: Mapping[str, Any], host: str, pid: int
) -> Query[ChangedAlert]:
    """No row, also if a later round has begun."""
    kinds, subjects, messages = _columns(
        [(each.kind, each.subject, each.message) for each in decision.raised], 3
    )
    updated_ids, updated_messages = _columns(decision.updated, 2)
    return Query(
        "alert/judge",
        {
            "round": round,
            "kinds": kinds,
            "subjects": subjects,
            "messages": messages,
            "said": updated_ids,
            "words": updated_messages,
            "calmed": decision.cleared,
            "closed": decision.closed,
            "memory": msgspec.json.encode(memory).decode(),
            "host": host,
            "pid": pid,
        },
        ChangedAlert,
    )


def record_refused(host: str, pid: int, jobs: int) -> Query[Any]:
    """Note completions that were refused."""
    return Query("alert/refuse", {"host": host, "pid": pid, "jobs": jobs}, lambda: None)


# What is told to the world outside


class AlertToDeliver(msgspec.Struct, frozen=True):
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
    delivered: list[str]
    attempts: int
    now: datetime


def claim_deliveries(limit: int, lease_seconds: float) -> Query[AlertToDeliver]:
    """`hold`: seconds after which another takes them, unless it was said what came of it."""
    return Query("alert/take", {"limit": limit, "hold": lease_seconds}, AlertToDeliver)


def mark_delivered(
    alert: AlertToDeliver, delivered: Sequence[str], retry_seconds: float | None
) -> Query[Any]:
    """`pause`: seconds until the rest is tried again; None: that was all."""
    params = {
        "id": alert.id,
        "told": list(delivered),
        "cleared": alert.cleared,
        "pause": retry_seconds,
    }
    return Query("alert/told", params, lambda: None)


# By hand


class OpenAlertCount(msgspec.Struct, frozen=True):
    kind: str
    alerts: int
    acknowledged: int


def count_open() -> Query[OpenAlertCount]:
    """Those that are open, by kind."""
    return Query("alert/tally", {}, OpenAlertCount)


def acknowledge(
    kind: str, subject: str | None, seconds: float, operator: str
) -> Query[ClosedAlert]:
    params = {"kind": kind, "subject": subject, "seconds": seconds, "who": operator}
    return Query("alert/acknowledge", params, ClosedAlert)


def dismiss(kind: str, subject: str | None, operator: str) -> Query[ClosedAlert]:
    return Query("alert/dismiss", {"kind": kind, "subject": subject, "who": operator}, ClosedAlert)


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [[row[column] for row in rows] for column in range(width)]

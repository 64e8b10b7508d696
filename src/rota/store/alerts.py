"""Queries for alerts: open, close, evaluate and deliver.

At most one alert is open for each kind and subject. It is closed when its condition no longer holds.

* Locks and leaders open and close their own alerts at once (`raise_alerts`, `clear_alerts`,
  `clear_resolved`).
* Conditions of the whole fleet are evaluated in rounds. One instance runs each round and writes its
  decision with `write_round`, all or nothing.
* Deliveries to notification channels are stored on the alert rows (`claim_deliveries`,
  `mark_delivered`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from rota.model import alert_decision
from rota.model.alert_decision import AlertDecision, OpenAlert
from rota.model.alert_rules import EVALUATED_KINDS
from rota.model.document import Mark
from rota.store.query import Params, Query, no_row, statement


class OpenedAlert(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    is_new: bool
    """True if the alert was not open before."""


class ClosedAlert(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    by_this_call: Annotated[bool, Mark.INTERNAL] = True
    """True if this statement closed the alert; False if it was closed earlier."""


def raise_alerts(
    alerts: Sequence[tuple[str, str, str, int | None]], host: str, pid: int
) -> Query[OpenedAlert]:
    """Open alerts, or update the message of those already open.

    Each item of `alerts` is (kind, subject, message, token of the lock it concerns).
    """
    kinds, subjects, messages, tokens = _columns(alerts, 4)
    params = {"kinds": kinds, "subjects": subjects, "messages": messages, "tokens": tokens}
    return Query("alert/raise", {**params, "host": host, "pid": pid}, OpenedAlert)


def clear_alerts(alerts: Sequence[tuple[str, str, int | None]]) -> Query[ClosedAlert]:
    kinds, subjects, tokens = _columns(alerts, 3)
    return Query(
        "alert/clear", {"kinds": kinds, "subjects": subjects, "tokens": tokens}, ClosedAlert
    )


def clear_resolved(known: Sequence[tuple[str, str]] = ()) -> Query[ClosedAlert]:
    """Close alerts whose condition no longer holds.

    `known` lists (kind, subject) of alerts that the caller believes to be open. The answer includes
    those of them that are not open any more.
    """
    kinds, subjects = _columns(known, 2)
    return Query("alert/clear_resolved", {"kinds": kinds, "subjects": subjects}, ClosedAlert)


# Rounds


class RoundStart(msgspec.Struct, frozen=True):
    round: int | None
    """Number of the round; None if it is not this instance's turn."""
    memory: bytes | None
    now: datetime
    has_deliveries: bool
    """True if deliveries are due."""


class ChangedAlert(msgspec.Struct, frozen=True):
    raised: bool
    """True if the alert was opened, False if it was closed."""
    kind: str
    subject: str
    message: str


@statement("alert/begin_round", RoundStart)
def begin_round(interval: float) -> None:
    """Begin a round if the last one began at least `interval` seconds ago, on any instance."""


@statement("alert/queue_heads", alert_decision.QueueHead)
def queue_heads() -> None: ...


@statement("alert/dead_workers", alert_decision.DeadWorker)
def dead_workers() -> None: ...


@statement("alert/live_workers", alert_decision.LiveWorker)
def live_workers() -> None: ...


@statement("alert/late_schedules", alert_decision.LateSchedule)
def late_schedules(late_seconds: float) -> None: ...


@statement("alert/failing_schedules", alert_decision.FailingSchedule)
def failing_schedules(min_failures: int) -> None: ...


@statement("alert/quarantined_jobs", alert_decision.QuarantinedJobs)
def quarantined_jobs() -> None: ...


@statement("alert/refused_outcomes", alert_decision.RefusedOutcomes)
def refused_outcomes(window_seconds: float) -> None: ...


@statement("alert/server_load", alert_decision.ServerLoad)
def server_load() -> None: ...


def list_open() -> Query[OpenAlert]:
    """Return the open alerts of the kinds that rounds evaluate."""
    return Query("alert/list_open", {"kinds": list(EVALUATED_KINDS)}, OpenAlert)


@statement("alert/write_round", ChangedAlert)
def write_round(
    round: int, decision: AlertDecision, memory: Mapping[str, Any], host: str, pid: int
) -> Params:
    """Write the decision of a round, unless a later round has begun.

    Return the alerts opened and closed.
    """
    kinds, subjects, messages = _columns(
        [(each.kind, each.subject, each.message) for each in decision.raised], 3
    )
    updated_ids, updated_messages = _columns(decision.updated, 2)
    return {
        "kinds": kinds,
        "subjects": subjects,
        "messages": messages,
        "updated_ids": updated_ids,
        "updated_messages": updated_messages,
        "calm_ids": decision.cleared,
        "closed_ids": decision.closed,
        "memory": msgspec.json.encode(memory).decode(),
    }


@statement("alert/record_refused", no_row)
def record_refused(host: str, pid: int, jobs: int) -> None:
    """Record the number of outcomes that the fence refused."""


# Deliveries


class AlertToDeliver(msgspec.Struct, frozen=True):
    """Alert with a delivery that is due."""

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


@statement("alert/claim_deliveries", AlertToDeliver)
def claim_deliveries(limit: int, lease_seconds: float) -> None:
    """Claim due deliveries.

    After `lease_seconds` another instance may claim a delivery, unless `mark_delivered` was called for
    it.
    """


@statement("alert/mark_delivered", no_row)
def mark_delivered(
    alert: AlertToDeliver, delivered: Sequence[str], retry_seconds: float | None
) -> Params:
    """Record the channels that received the alert.

    The other channels are retried after `retry_seconds`; None if no channel is left.
    """
    return {"id": alert.id, "cleared": alert.cleared}


# Operator actions


@statement("alert/acknowledge", ClosedAlert)
def acknowledge(kind: str, subject: str | None, seconds: float, operator: str) -> None: ...


@statement("alert/dismiss", ClosedAlert)
def dismiss(kind: str, subject: str | None, operator: str) -> None: ...


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [[row[column] for row in rows] for column in range(width)]

"""Operations on alerts: list, acknowledge, dismiss."""

from __future__ import annotations

import os
import socket
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.engine.alerting.evaluator import STALE_SECONDS, Evaluation
from rota.model.access import Role
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import Limit, Name
from rota.operations.refusals import NotFound
from rota.store import alerts
from rota.store.query import Query
from rota.store.read import coordination

group = OperationGroup("fleet")


class AlertListQuery(msgspec.Struct, forbid_unknown_fields=True):
    include_closed: Annotated[bool, Meta(description="Also list closed alerts.")] = False
    limit: Limit = 50


class AlertList(msgspec.Struct, frozen=True):
    alerts: list[coordination.AlertRow]


class DismissAlertRequest(msgspec.Struct, forbid_unknown_fields=True):
    kind: Name
    subject: (
        Annotated[str, Meta(max_length=1000, description="null: every alert of this kind.")] | None
    ) = None


class AcknowledgeAlertRequest(DismissAlertRequest):
    seconds: Annotated[
        float, Meta(gt=0, le=3.2e7, description="Duration of the acknowledgement, in seconds.")
    ] = 3600.0


class AlertSubjects(msgspec.Struct, frozen=True):
    alerts: list[alerts.ClosedAlert]


@group.operation("GET /alerts", Role.VIEWER)
async def list_alerts(context: OperationContext, query: AlertListQuery) -> AlertList:
    """List alerts, the latest first. If no worker has evaluated the rules for a minute, this does."""
    await evaluate_if_stale(context)
    [found] = await context.read(
        coordination.alerts(include_closed=query.include_closed, limit=query.limit)
    )
    return AlertList(found)


async def evaluate_if_stale(context: OperationContext) -> None:
    """Evaluate the alert rules if no worker has done so for a minute, and close resolved alerts."""
    database = (await context.app.open()).database
    process = (socket.gethostname(), os.getpid())
    await Evaluation(database, process).evaluate(STALE_SECONDS)
    await database.run(alerts.clear_resolved())


@group.operation(
    "POST /alerts/acknowledge", Role.OPERATOR, audit="acknowledge alert", refuses=(NotFound,)
)
async def acknowledge_alerts(
    context: OperationContext, body: AcknowledgeAlertRequest
) -> AlertSubjects:
    """Acknowledge alerts: no further notifications are sent for the given time."""
    query = alerts.acknowledge(body.kind, body.subject, body.seconds, context.caller.name)
    return await _change_alerts(context, body, query)


@group.operation("POST /alerts/dismiss", Role.OPERATOR, audit="close alert", refuses=(NotFound,))
async def dismiss_alerts(context: OperationContext, body: DismissAlertRequest) -> AlertSubjects:
    """Close alerts. An alert is raised again if its condition persists."""
    query = alerts.dismiss(body.kind, body.subject, context.caller.name)
    return await _change_alerts(context, body, query)


async def _change_alerts(
    context: OperationContext, body: DismissAlertRequest, query: Query[alerts.ClosedAlert]
) -> AlertSubjects:
    found = await (await context.app.open()).database.run(query)
    if not found:
        about = "" if body.subject is None else f" about {body.subject!r}"
        raise NotFound(
            f"no alert {body.kind!r}{about} is open; list open alerts with `rota alerts`"
        )
    return AlertSubjects(found)

"""Alerts page: open alerts and past ones."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model import alert_rules
from rota.operations.alerts import evaluate_if_stale
from rota.operations.declare import OperationContext
from rota.operations.documents import MAX_INT64
from rota.store.read import coordination
from rota.store.read.coordination import AlertRow
from rota.web.dashboard.router import Pages, PageView
from rota.web.dashboard.template_helpers import segment

pages = Pages()

MAX_OPEN_ALERTS = 200
PAST_PAGE_SIZE = 50

ACKNOWLEDGE_SPANS = (
    (3600, "1 hour"),
    (8 * 3600, "8 hours"),
    (86400, "1 day"),
    (7 * 86400, "1 week"),
)
"""Durations offered for acknowledging an alert."""


class AlertsPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    before: Annotated[int, Meta(ge=1, le=MAX_INT64)] = coordination.MAX_ID


@pages.page("/alerts", title="Alerts")
async def alerts(context: OperationContext, query: AlertsPageQuery) -> PageView:
    await evaluate_if_stale(context)
    found, past = await context.read(
        coordination.alerts(limit=MAX_OPEN_ALERTS + 1),
        coordination.closed_alerts(query.before, PAST_PAGE_SIZE + 1),
    )
    return PageView(
        "alerts.html",
        query=query,
        newest=query.before == coordination.MAX_ID,
        alerts=[(each, page_of(each)) for each in found[:MAX_OPEN_ALERTS]],
        more_open=len(found) > MAX_OPEN_ALERTS,
        past=past[:PAST_PAGE_SIZE],
        older=past[PAST_PAGE_SIZE - 1].id if len(past) > PAST_PAGE_SIZE else None,
        spans=ACKNOWLEDGE_SPANS,
    )


def page_of(alert: AlertRow) -> str | None:
    """Return the page about the subject of an alert, or None if there is none."""
    if alert.kind in (alert_rules.SCHEDULE_LATE, alert_rules.SCHEDULE_FAILS):
        return f"/schedules/{segment(alert.subject)}"
    return _PAGES.get(alert.kind)


_PAGES = {
    alert_rules.WORKER_DEAD: "/workers",
    alert_rules.QUEUE_OLD: "/queues",
    alert_rules.QUARANTINE: "/runs?state=quarantined",
    alert_rules.REFUSED: "/workers",
    alert_rules.HELD_TOO_LONG: "/coordination",
    alert_rules.RENEWALS_FAIL: "/coordination",
    alert_rules.TOKEN_TWICE: "/coordination",
    alert_rules.FLAPPING: "/coordination#leaders",
}

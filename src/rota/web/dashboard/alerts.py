"""Alerts: what somebody should look at, and what there was."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model import rules
from rota.store import standing
from rota.store.standing import AlertRow
from rota.web.api.operations import RequestContext
from rota.web.api.shapes import MAX_INT64
from rota.web.dashboard.pages import Pages, PageView
from rota.web.dashboard.shown import segment

pages = Pages()

MAX_OPEN_ALERTS = 200
PAST_PAGE_SIZE = 50

ACKNOWLEDGE_SPANS = (
    (3600, "1 hour"),
    (8 * 3600, "8 hours"),
    (86400, "1 day"),
    (7 * 86400, "1 week"),
)
"""For how long somebody may say that he sees to it."""


class AlertsPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    before: Annotated[int, Meta(ge=1, le=MAX_INT64)] = standing.MAX_ID


@pages.page("/alerts", title="Alerts")
async def alerts(context: RequestContext, query: AlertsPageQuery) -> PageView:
    found, past = await context.read(
        standing.alerts(limit=MAX_OPEN_ALERTS + 1),
        standing.closed_alerts(query.before, PAST_PAGE_SIZE + 1),
    )
    return PageView(
        "alerts.html",
        query=query,
        newest=query.before == standing.MAX_ID,
        alerts=[(each, page_of(each)) for each in found[:MAX_OPEN_ALERTS]],
        more_open=len(found) > MAX_OPEN_ALERTS,
        past=past[:PAST_PAGE_SIZE],
        older=past[PAST_PAGE_SIZE - 1].id if len(past) > PAST_PAGE_SIZE else None,
        spans=ACKNOWLEDGE_SPANS,
    )


def page_of(alert: AlertRow) -> str | None:
    """The page of what it is about; None: it has none."""
    if alert.kind in (rules.SCHEDULE_LATE, rules.SCHEDULE_FAILS):
        return f"/schedules/{segment(alert.subject)}"
    return _PAGES.get(alert.kind)


_PAGES = {
    rules.WORKER_DEAD: "/workers",
    rules.QUEUE_OLD: "/queues",
    rules.QUARANTINE: "/runs?state=quarantined",
    rules.REFUSED: "/workers",
    rules.HELD_TOO_LONG: "/coordination",
    rules.RENEWALS_FAIL: "/coordination",
    rules.TOKEN_TWICE: "/coordination",
    rules.FLAPPING: "/coordination#leaders",
}

"""Alerts: what somebody should look at, and what there was."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model import rules
from rota.store import standing
from rota.store.standing import AlertLine
from rota.web.api.operations import Desk
from rota.web.api.shapes import LARGEST
from rota.web.dashboard.pages import Pages, View
from rota.web.dashboard.shown import segment

table = Pages()

OPEN = 200
PAST = 50

SPANS = ((3600, "1 hour"), (8 * 3600, "8 hours"), (86400, "1 day"), (7 * 86400, "1 week"))
"""For how long somebody may say that he sees to it."""


class AlertsQuery(msgspec.Struct, forbid_unknown_fields=True):
    before: Annotated[int, Meta(ge=1, le=LARGEST)] = standing.NEWEST


@table.page("/alerts", title="Alerts")
async def alerts(desk: Desk, query: AlertsQuery) -> View:
    found, past = await desk.ask(
        standing.alerts(limit=OPEN + 1), standing.past_alerts(query.before, PAST + 1)
    )
    return View(
        "alerts.html",
        query=query,
        newest=query.before == standing.NEWEST,
        alerts=[(each, about(each)) for each in found[:OPEN]],
        more_open=len(found) > OPEN,
        past=past[:PAST],
        older=past[PAST - 1].id if len(past) > PAST else None,
        spans=SPANS,
    )


def about(alert: AlertLine) -> str | None:
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

"""Overview: what goes on, how it went, and what somebody should look at."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.store import history, meters, standing, views
from rota.store import queues as queue_store
from rota.store.meters import Scaled
from rota.web.api.operations import Desk
from rota.web.dashboard import plots
from rota.web.dashboard.attention import FEW, concerns
from rota.web.dashboard.pages import Pages, View
from rota.web.dashboard.plots import SPANS, Within
from rota.web.figures import scaling

table = Pages()

SHOWN = 8
"""Of what is listed here; the page about it has the rest."""

TOLD = 100
"""Alerts that are read, so that what they tell of is not told again."""


class OverviewQuery(msgspec.Struct, forbid_unknown_fields=True):
    within: Within | None = None


@table.page("/", title="Overview")
async def overview(desk: Desk, query: OverviewQuery) -> View:
    within = await plots.looking_back(desk, query.within)
    settings = desk.app.settings
    [now], [fleet], queues, counts, depths, *rest = await desk.ask(
        views.clock(),
        meters.fleet(settings.dead_after),
        scaling(desk.app),
        within.counts(),
        history.depths(within.step, within.many),
        standing.alerts(limit=TOLD),
        history.unserved(),
        history.troubled(late=60.0, limit=FEW + 1),
        queue_store.paused(),
        history.under_way(SHOWN),
        history.failed(SHOWN),
    )
    alerts, unserved, troubled, paused, going, failed = rest
    ready = sum(each.backlog for each in queues)
    seen = [each for _, each in depths]
    seen[-1] = ready  # what is so now is known
    oldest = sorted((each for each in queues if each.backlog), key=lambda each: -each.oldest)
    return View(
        "overview.html",
        within=within,
        spans=list(SPANS.values()),
        fleet=fleet,
        ready=plots.deep(ready) if ready < plots.COUNTED else f"≈{plots.short(ready)}",
        sums=plots.total(counts),
        concerns=concerns(fleet, alerts, unserved, troubled, paused),
        throughput=plots.throughput(within, counts),
        waits=plots.waits(within, counts),
        depth=plots.depth(within, counts[0].at, seen),
        rows=list(zip(counts, seen, strict=True))[::-1],
        oldest=[_waiting(each, now) for each in oldest[:SHOWN]],
        more_queues=max(len(oldest) - SHOWN, 0),
        going=going,
        failed=failed,
    )


def _waiting(queue: Scaled, now: datetime) -> dict[str, Any]:
    return {
        "queue": queue.queue,
        "ready": plots.deep(queue.backlog),
        "since": plots.since(now, queue.oldest),
        "workers": queue.workers,
        "wanted": queue.wanted,
    }

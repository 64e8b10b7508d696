"""Overview: what goes on, how it went, and what somebody should look at."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.app import listing
from rota.store import history, meters, standing, views
from rota.store import queues as queue_store
from rota.store.listing import Matching
from rota.store.meters import Scaled
from rota.store.views import RunLine
from rota.web.api.operations import Desk
from rota.web.dashboard import plots
from rota.web.dashboard.attention import FEW, concerns
from rota.web.dashboard.pages import Pages, View
from rota.web.dashboard.plots import SPANS, Within
from rota.web.figures import scaling

table = Pages()

SHOWN = 8
"""Of what is listed here; the page about it has the rest."""

LOOKED_FOR = 0.05
"""Seconds, about, after which the latest that run, and that failed, are as many as were found."""

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
    )
    alerts, unserved, troubled, paused = rest
    going, more_may_run = await _latest(desk, "running")
    failed, more_may_have_failed = await _latest(desk, "failed")
    [shares] = await desk.ask(history.shares([each.run for each in going if each.is_flow]))
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
        shares={each.run: each for each in shares},
        more_may_run=more_may_run,
        failed=failed,
        more_may_have_failed=more_may_have_failed,
    )


async def _latest(desk: Desk, state: str) -> tuple[list[RunLine], bool]:
    """The latest runs in this state, and whether there may be others that were not looked at."""
    wanted = Matching(states=(state,))
    found = await listing.find(desk.ask, wanted, SHOWN, seconds=LOOKED_FOR)
    return await listing.lines(desk.ask, wanted, found.spots), found.looked is not None


def _waiting(queue: Scaled, now: datetime) -> dict[str, Any]:
    return {
        "queue": queue.queue,
        "ready": plots.deep(queue.backlog),
        "since": plots.since(now, queue.oldest),
        "workers": queue.workers,
        "wanted": queue.wanted,
    }

"""Overview: what goes on, how it went, and what somebody should look at."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.app import listing
from rota.store import history, meters, standing, views
from rota.store import queues as queue_store
from rota.store.listing import RunFilter
from rota.store.meters import DesiredWorkersRow
from rota.store.views import RunRow
from rota.web.api.operations import RequestContext
from rota.web.dashboard import plots
from rota.web.dashboard.attention import MAX_LINES, list_problems
from rota.web.dashboard.pages import Pages, PageView
from rota.web.dashboard.plots import CHART_RANGES, RangeName
from rota.web.figures import desired_workers

pages = Pages()

MAX_ROWS = 8
"""Of what is listed here; the page about it has the rest."""

SEARCH_SECONDS = 0.05
"""Seconds, about, after which the latest that run, and that failed, are as many as were found."""

MAX_ALERTS = 100
"""Alerts that are read, so that what they tell of is not told again."""


class OverviewPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    range: RangeName | None = None


@pages.page("/", title="Overview")
async def overview(context: RequestContext, query: OverviewPageQuery) -> PageView:
    chart_range = await plots.choose_range(context, query.range)
    settings = context.app.settings
    [now], [fleet], queues, counts, depths, *problem_rows = await context.read(
        views.database_time(),
        meters.fleet_totals(settings.dead_after),
        desired_workers(context.app),
        chart_range.counts(),
        history.queue_depths(chart_range.bucket_seconds, chart_range.buckets),
        standing.alerts(limit=MAX_ALERTS),
        history.unserved_tasks(),
        history.problem_schedules(late_seconds=60.0, limit=MAX_LINES + 1),
        queue_store.list_paused(),
    )
    alerts, unserved, problem_schedules, paused = problem_rows
    running, more_may_run = await _latest_runs(context, "running")
    failed, more_may_have_failed = await _latest_runs(context, "failed")
    [shares] = await context.read(
        history.flow_progress([each.run for each in running if each.is_flow])
    )
    queued = sum(each.backlog for each in queues)
    depth_values = [each for _, each in depths]
    depth_values[-1] = queued  # what is so now is known
    oldest = sorted((each for each in queues if each.backlog), key=lambda each: -each.oldest)
    return PageView(
        "overview.html",
        chart_range=chart_range,
        spans=list(CHART_RANGES.values()),
        fleet=fleet,
        queued=plots.format_depth(queued)
        if queued < plots.MAX_EXACT_COUNT
        else f"≈{plots.format_short(queued)}",
        totals=plots.sum_counts(counts),
        problems=list_problems(fleet, alerts, unserved, problem_schedules, paused),
        throughput=plots.throughput(chart_range, counts),
        waits=plots.waits(chart_range, counts),
        depth=plots.depth(chart_range, counts[0].at, depth_values),
        rows=list(zip(counts, depth_values, strict=True))[::-1],
        oldest=[_queue_row(each, now) for each in oldest[:MAX_ROWS]],
        more_queues=max(len(oldest) - MAX_ROWS, 0),
        running_runs=running,
        shares={each.run: each for each in shares},
        more_may_run=more_may_run,
        failed=failed,
        more_may_have_failed=more_may_have_failed,
    )


async def _latest_runs(context: RequestContext, state: str) -> tuple[list[RunRow], bool]:
    """The latest runs in this state, and whether there may be others that were not looked at."""
    run_filter = RunFilter(states=(state,))
    found = await listing.find_runs(context.read, run_filter, MAX_ROWS, seconds=SEARCH_SECONDS)
    return await listing.load_rows(
        context.read, run_filter, found.positions
    ), found.searched_to is not None


def _queue_row(queue: DesiredWorkersRow, now: datetime) -> dict[str, Any]:
    return {
        "queue": queue.queue,
        "queued": plots.format_depth(queue.backlog),
        "since": plots.time_before(now, queue.oldest),
        "workers": queue.workers,
        "desired": queue.desired,
    }

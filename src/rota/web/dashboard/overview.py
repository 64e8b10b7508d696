"""Overview page: current activity, recent outcomes and problems."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota.operations import run_search
from rota.operations.declare import OperationContext
from rota.store import metrics as store_metrics
from rota.store import queues as queue_store
from rota.store.metrics import DesiredWorkersRow
from rota.store.read import coordination, metrics, runs
from rota.store.read.run_list import RunFilter
from rota.store.read.runs import RunRow
from rota.web.dashboard import charts
from rota.web.dashboard.charts import RangeQuery
from rota.web.dashboard.problems import MAX_LINES, list_problems
from rota.web.dashboard.router import Pages, PageView
from rota.web.fleet_metrics import desired_workers

pages = Pages()

MAX_ROWS = 8
"""Rows of each list; its own page shows the rest."""

SEARCH_SECONDS = 0.05
"""Approximate limit of the search for the latest running and failed runs."""

MAX_ALERTS = 100
"""Number of alerts read to avoid listing their problems twice."""


@pages.page("/", title="Overview")
async def overview(context: OperationContext, query: RangeQuery) -> PageView:
    chart_range = await charts.choose_range(context, query.range)
    settings = context.app.settings
    [now], [fleet], queues, counts, depths, *problem_rows = await context.read(
        runs.database_time(),
        store_metrics.fleet_totals(settings.dead_after),
        desired_workers(context.app),
        chart_range.counts(),
        metrics.queue_depths(chart_range.bucket_seconds, chart_range.buckets),
        coordination.alerts(limit=MAX_ALERTS),
        queue_store.unserved_tasks(),
        metrics.problem_schedules(late_seconds=60.0, limit=MAX_LINES + 1),
        queue_store.list_paused(),
    )
    alerts, unserved, problem_schedules, paused = problem_rows
    running, more_may_run = await _latest_runs(context, "running")
    failed, more_may_have_failed = await _latest_runs(context, "failed")
    [shares] = await context.read(
        metrics.flow_progress([each.run for each in running if each.is_flow])
    )
    queued = sum(each.backlog for each in queues)
    depth_values = [each for _, each in depths]
    depth_values[-1] = queued  # the current value is known
    oldest = sorted((each for each in queues if each.backlog), key=lambda each: -each.oldest)
    return PageView(
        "overview.html",
        chart_range=chart_range,
        fleet=fleet,
        queued=charts.format_depth(queued)
        if queued < charts.MAX_EXACT_COUNT
        else f"≈{charts.format_short(queued)}",
        totals=charts.sum_counts(counts),
        problems=list_problems(fleet, alerts, unserved, problem_schedules, paused),
        throughput=charts.throughput(chart_range, counts),
        waits=charts.waits(chart_range, counts),
        depth=charts.depth(chart_range, counts[0].at, depth_values),
        rows=list(zip(counts, depth_values, strict=True))[::-1],
        oldest=[_queue_row(each, now) for each in oldest[:MAX_ROWS]],
        more_queues=max(len(oldest) - MAX_ROWS, 0),
        running_runs=running,
        shares={each.run: each for each in shares},
        more_may_run=more_may_run,
        failed=failed,
        more_may_have_failed=more_may_have_failed,
    )


async def _latest_runs(context: OperationContext, state: str) -> tuple[list[RunRow], bool]:
    """Return the latest runs in this state, and True if the search may have missed further ones."""
    run_filter = RunFilter(states=(state,))
    found = await run_search.find_runs(context.read, run_filter, MAX_ROWS, seconds=SEARCH_SECONDS)
    return await run_search.load_rows(
        context.read, run_filter, found.positions
    ), found.searched_to is not None


def _queue_row(queue: DesiredWorkersRow, now: datetime) -> dict[str, Any]:
    return {
        "queue": queue.queue,
        "queued": charts.format_depth(queue.backlog),
        "since": charts.time_before(now, queue.oldest),
        "workers": queue.workers,
        "desired": queue.desired,
    }

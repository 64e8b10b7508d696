"""Queue pages: number and age of queued jobs, arrivals, completions and workers, for all queues and for
one.

Tasks that no worker serves are listed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rota.operations.declare import OperationContext
from rota.operations.documents import Name
from rota.store import queues as store
from rota.store.metrics import DesiredWorkersRow
from rota.store.queues import PauseRow
from rota.store.read import metrics, runs
from rota.store.read.metrics import QueueHistoryRow
from rota.store.read.runs import WorkerDetailRow
from rota.web.dashboard import charts
from rota.web.dashboard.charts import RangeQuery
from rota.web.dashboard.router import Pages, PageView
from rota.web.fleet_metrics import desired_workers
from rota.web.responses import HttpError

pages = Pages()

SPARK_BUCKET_SECONDS, SPARK_BUCKETS = 120.0, 30
"""Buckets of the sparklines: the last hour."""

MAX_QUEUES = 200
"""Limit of queues shown, by name."""

MAX_WORKERS = 20
"""Limit of workers listed for one queue."""


@pages.page("/queues", title="Queues")
async def queues(context: OperationContext) -> PageView:
    [now], rows, unserved, paused = await context.read(
        runs.database_time(),
        desired_workers(context.app),
        store.unserved_tasks(),
        store.list_paused(),
    )
    pauses = {each.queue: each for each in paused}
    listed = {each.queue for each in rows}
    rows += [_empty_row(name) for name in pauses if name not in listed]
    names = [each.queue for each in rows]
    histories: list[QueueHistoryRow] = []
    if names:
        [histories] = await context.read(
            metrics.queue_history(names, SPARK_BUCKET_SECONDS, SPARK_BUCKETS)
        )
    history_by_queue = {past.queue: past for past in histories}
    return PageView(
        "queues.html",
        queues=[
            _queue_view(each, history_by_queue[each.queue], now, pauses.get(each.queue))
            for each in rows
        ],
        is_truncated=len(rows) >= MAX_QUEUES,
        unserved=unserved,
    )


def _empty_row(queue: str) -> DesiredWorkersRow:
    """Return the row of a paused queue without any statistics."""
    return DesiredWorkersRow(queue, 0, 0, 0, 0.0, 0.0, 0.0, None, 0.0)


def _queue_view(
    queue: DesiredWorkersRow, past: QueueHistoryRow, now: datetime, paused: PauseRow | None
) -> dict[str, Any]:
    arrived = past.arrived(queue.backlog)
    period_seconds = (len(past.ended[-3:]) - 1) * SPARK_BUCKET_SECONDS + max(
        now.timestamp() % SPARK_BUCKET_SECONDS, 1.0
    )
    return {
        "queue": queue.queue,
        "paused": paused,
        "queued": charts.format_depth(queue.backlog),
        "since": charts.time_before(now, queue.oldest),
        "running": queue.running,
        "arrivals": charts.format_figure(queue.arrival_rate * 60),
        "ended": charts.format_figure(sum(past.ended[-3:]) / period_seconds * 60),
        "mean_seconds": queue.mean_seconds,
        "workers": queue.workers,
        "desired": queue.desired,
        "depth_plot": charts.draw_sparkline("queued", [*past.queued, queue.backlog], "queued"),
        "arrived_plot": charts.draw_sparkline("arrivals in two minutes", arrived, "arrived"),
        "ended_plot": charts.draw_sparkline("ended in two minutes", past.ended, "ended"),
    }


@pages.page("/queues/{queue:path}", title="Queue")
async def queue(context: OperationContext, queue: Name, query: RangeQuery) -> PageView:
    chart_range = await charts.choose_range(context, query.range)
    [now], [row], counts, [past], unserved, workers, paused = await context.read(
        runs.database_time(),
        desired_workers(context.app, queue=queue),
        chart_range.counts(queue=queue),
        metrics.queue_history([queue], chart_range.bucket_seconds, chart_range.buckets),
        store.unserved_tasks(),
        runs.workers(),
        store.list_paused(),
    )
    pause = next((each for each in paused if each.queue == queue), None)
    serving = [each for each in workers if queue in each.queues and each.state == "active"]
    declared = any(each.policy.queue == queue for each in context.app.registry.tasks.values())
    if pause is None and not declared and not _is_known(row, counts, serving, past):
        raise HttpError(404, "not_found", f"there is no queue {queue!r:.60}")
    return PageView(
        "queue.html",
        title=f"Queue {queue}",
        row=_queue_view(row, past, now, pause),
        chart_range=chart_range,
        totals=charts.sum_counts(counts),
        throughput=charts.throughput(chart_range, counts),
        waits=charts.waits(chart_range, counts),
        runtimes=charts.runtimes(chart_range, counts),
        depth=charts.depth(chart_range, counts[0].at, [*past.queued[1:], row.backlog]),
        unserved=[each for each in unserved if each.queue == queue],
        serving=serving[:MAX_WORKERS],
        more=max(len(serving) - MAX_WORKERS, 0),
    )


def _is_known(
    queue: DesiredWorkersRow,
    counts: Sequence[metrics.BucketRow],
    serving: Sequence[WorkerDetailRow],
    past: QueueHistoryRow,
) -> bool:
    """True if the queue has workers, or had jobs recently."""
    return bool(
        queue.backlog
        or queue.running
        or serving
        or any(past.queued)
        or any(each.attempts for each in counts)
    )

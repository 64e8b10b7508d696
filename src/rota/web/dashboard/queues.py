"""Queues: how much waits in each and for how long, how fast it comes and goes, and who serves it; and one
of them. What no worker would take is said first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.store import history, views
from rota.store import queues as store
from rota.store.history import QueuePast
from rota.store.meters import Scaled
from rota.store.queues import Pause
from rota.store.views import WorkerDetail
from rota.web.answers import Refused
from rota.web.api.operations import Desk
from rota.web.dashboard import plots
from rota.web.dashboard.pages import Pages, View
from rota.web.dashboard.plots import SPANS, Within
from rota.web.figures import scaling

table = Pages()

STEP, MANY = 120.0, 30
"""Of the small pictures: the last hour."""

MOST = 200
"""Queues that are shown, by name."""

SERVING = 20
"""Workers that are named of one queue."""

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class QueueQuery(msgspec.Struct, forbid_unknown_fields=True):
    within: Within | None = None


@table.page("/queues", title="Queues")
async def queues(desk: Desk) -> View:
    [now], scaled, unserved, paused = await desk.ask(
        views.clock(), scaling(desk.app), history.unserved(), store.paused()
    )
    held = {each.queue: each for each in paused}
    there = {each.queue for each in scaled}
    scaled += [_nothing(name) for name in held if name not in there]
    names = [each.queue for each in scaled]
    pasts: list[QueuePast] = []
    if names:
        [pasts] = await desk.ask(history.queues(names, STEP, MANY))
    known = {past.queue: past for past in pasts}
    return View(
        "queues.html",
        queues=[_line(each, known[each.queue], now, held.get(each.queue)) for each in scaled],
        full=len(scaled) >= MOST,
        unserved=unserved,
    )


def _nothing(queue: str) -> Scaled:
    """A queue of which nothing is known but that it is paused."""
    return Scaled(queue, 0, 0, 0, 0.0, 0.0, 0.0, None, 0.0)


def _line(queue: Scaled, past: QueuePast, now: datetime, paused: Pause | None) -> dict[str, Any]:
    arrived = past.arrived(queue.backlog)
    over = (len(past.ended[-3:]) - 1) * STEP + max(now.timestamp() % STEP, 1.0)
    return {
        "queue": queue.queue,
        "paused": paused,
        "ready": plots.deep(queue.backlog),
        "since": plots.since(now, queue.oldest),
        "running": queue.running,
        "arrivals": plots.figure(queue.arrivals * 60),
        "ended": plots.figure(sum(past.ended[-3:]) / over * 60),
        "service": queue.service,
        "workers": queue.workers,
        "wanted": queue.wanted,
        "depth_plot": plots.small("ready", [*past.ready, queue.backlog], "ready"),
        "arrived_plot": plots.small("came in two minutes", arrived, "arrived"),
        "ended_plot": plots.small("ended in two minutes", past.ended, "ended"),
    }


@table.page("/queues/{queue:path}", title="Queue")
async def queue(desk: Desk, queue: Name, query: QueueQuery) -> View:
    within = await plots.looking_back(desk, query.within)
    [now], [scaled], counts, [past], unserved, workers, paused = await desk.ask(
        views.clock(),
        scaling(desk.app, queue=queue),
        within.counts(queue=queue),
        history.queues([queue], within.step, within.many),
        history.unserved(),
        views.workers(),
        store.paused(),
    )
    pause = next((each for each in paused if each.queue == queue), None)
    serving = [each for each in workers if queue in each.queues and each.state == "active"]
    declared = any(each.policy.queue == queue for each in desk.app.registry.tasks.values())
    if pause is None and not declared and not _is_known(scaled, counts, serving, past):
        raise Refused(404, "not_found", f"nothing is known of a queue {queue!r:.60}")
    return View(
        "queue.html",
        title=f"Queue {queue}",
        line=_line(scaled, past, now, pause),
        shows=desk.shows,
        within=within,
        spans=list(SPANS.values()),
        sums=plots.total(counts),
        throughput=plots.throughput(within, counts),
        waits=plots.waits(within, counts),
        runtimes=plots.runtimes(within, counts),
        depth=plots.depth(within, counts[0].at, [*past.ready[1:], scaled.backlog]),
        unserved=[each for each in unserved if each.queue == queue],
        serving=serving[:SERVING],
        more=max(len(serving) - SERVING, 0),
    )


def _is_known(
    queue: Scaled,
    counts: Sequence[history.Stretch],
    serving: Sequence[WorkerDetail],
    past: QueuePast,
) -> bool:
    """Whether somebody serves it, or something was in it lately."""
    return bool(
        queue.backlog
        or queue.running
        or serving
        or any(past.ready)
        or any(each.attempts for each in counts)
    )

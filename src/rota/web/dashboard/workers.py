"""Workers, and instances that stand by for services: how each does, what it runs of what it could, and who
has left. Where they run different versions, a deploy is under way, or was forgotten."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rota.store import meters, standing, views
from rota.store.services import leader_of
from rota.web.api.operations import Desk
from rota.web.dashboard.pages import Pages, View
from rota.web.instances import Instance, merge

table = Pages()

PAGE = 50
GONE = 20
"""So many that have left are shown."""

STATES = ("silent", "draining", "active", "standing by")
"""Whom somebody should look at comes first."""


class WorkersQuery(msgspec.Struct, forbid_unknown_fields=True):
    state: Literal["active", "draining", "silent", "standing by"] | None = None
    version: Annotated[str, Meta(max_length=200)] | None = None
    find: Annotated[str, Meta(max_length=200)] = ""
    """What its host or the name of one of its queues begins with."""
    page: Annotated[int, Meta(ge=1, le=10_000)] = 1


@table.page("/workers", title="Workers")
async def workers(desk: Desk, query: WorkersQuery) -> View:
    found, standing_by, leaders, [now], gone = await desk.ask(
        views.workers(),
        meters.instances(),
        standing.leaders(),
        views.clock(),
        views.departed(GONE + 1),
    )
    there = merge(found, standing_by, leaders, now, desk.app.settings.dead_after)
    there.sort(key=lambda each: (STATES.index(each.state), each.host, each.started, each.pid))
    working = [each for each in there if each.worker is not None]
    heard = [each for each in working if each.state != "silent"]
    wanted = [each for each in there if _is_wanted(each, query)]
    first = (query.page - 1) * PAGE
    return View(
        "workers.html",
        query=query,
        there=len(there),
        instances=wanted[first : first + PAGE],
        first=first,
        wanted=len(wanted),
        more=len(wanted) > first + PAGE,
        working=len(working),
        running=sum(each.running for each in heard),
        capacity=sum(each.concurrency for each in heard),
        states=[(each, Counter(one.state for one in there)[each]) for each in STATES],
        seats={leader_of(name) for each in there for name in each.services},
        versions=sorted(Counter(each.version for each in there).items()),
        gone=gone[:GONE],
        more_gone=len(gone) > GONE,
    )


def _is_wanted(each: Instance, query: WorkersQuery) -> bool:
    return (
        (query.state is None or each.state == query.state)
        and (query.version is None or each.version == query.version)
        and any(name.startswith(query.find) for name in (each.host, *each.queues))
    )

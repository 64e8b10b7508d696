"""Workers page: workers and standby instances with their state and load, and workers that have ended.

Instances with different versions mean that a deploy is in progress, or was not completed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rota.operations.declare import OperationContext
from rota.store import metrics
from rota.store.read import coordination, runs
from rota.store.services import leader_of
from rota.web.dashboard.router import Pages, PageView
from rota.web.instances import InstanceDocument, merge

pages = Pages()

PAGE_SIZE = 50
MAX_DEPARTED = 20
"""Number of ended workers shown."""

STATE_ORDER = ("silent", "draining", "active", "standing by")
"""Sort order: states that need attention first."""


class WorkersPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    state: Literal["active", "draining", "silent", "standing by"] | None = None
    version: Annotated[str, Meta(max_length=200)] | None = None
    find: Annotated[str, Meta(max_length=200)] = ""
    """Prefix of the host or of one of the queues."""
    page: Annotated[int, Meta(ge=1, le=10_000)] = 1


@pages.page("/workers", title="Workers")
async def workers(context: OperationContext, query: WorkersPageQuery) -> PageView:
    found, standing_by, leaders, [now], departed = await context.read(
        runs.workers(),
        metrics.service_instances(),
        coordination.leaders(),
        runs.database_time(),
        runs.ended_workers(MAX_DEPARTED + 1),
    )
    instances = merge(found, standing_by, leaders, now, context.app.settings.dead_after)
    instances.sort(
        key=lambda each: (STATE_ORDER.index(each.state), each.host, each.started, each.pid)
    )
    with_worker = [each for each in instances if each.worker is not None]
    responsive = [each for each in with_worker if each.state != "silent"]
    matching = [each for each in instances if _matches(each, query)]
    first = (query.page - 1) * PAGE_SIZE
    return PageView(
        "workers.html",
        query=query,
        instance_count=len(instances),
        instances=matching[first : first + PAGE_SIZE],
        first=first,
        match_count=len(matching),
        more=len(matching) > first + PAGE_SIZE,
        worker_count=len(with_worker),
        running=sum(each.running for each in responsive),
        capacity=sum(each.capacity for each in responsive),
        states=_count_states(instances),
        service_leaders={leader_of(name) for each in instances for name in each.services},
        versions=sorted(Counter(each.version for each in instances).items()),
        departed=departed[:MAX_DEPARTED],
        more_departed=len(departed) > MAX_DEPARTED,
    )


def _count_states(instances: Sequence[InstanceDocument]) -> list[tuple[str, int]]:
    counts = Counter(each.state for each in instances)
    return [(state, counts[state]) for state in STATE_ORDER]


def _matches(each: InstanceDocument, query: WorkersPageQuery) -> bool:
    return (
        (query.state is None or each.state == query.state)
        and (query.version is None or each.version == query.version)
        and any(name.startswith(query.find) for name in (each.host, *each.queues))
    )

"""Who is there: every worker, and every instance that stands by for services, as one list."""

from __future__ import annotations

import os
import socket
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from rota.store import meters, standing, views
from rota.store.meters import InstanceLine
from rota.store.standing import LeaderLine
from rota.store.views import WorkerDetail

if TYPE_CHECKING:
    from rota.app import Rota

ANSWER_WITHIN = 5.0
"""Seconds."""


class Instance(msgspec.Struct, kw_only=True):
    host: str
    pid: int
    here: bool
    """It is the one that answers."""
    state: str
    """active, draining or silent of a worker; standing by of one that has none."""
    version: str
    engine: str | None = None
    worker: int | None = None
    running: int = 0
    concurrency: int = 0
    load: float = 0.0
    """What runs, as a share of what may."""
    lag: float = 0.0
    queues: list[str] = msgspec.field(default_factory=list)
    started: datetime
    heard: datetime
    """When it was last heard of."""
    silent_for: float
    """Seconds since."""
    services: list[str] = msgspec.field(default_factory=list)
    """Those it runs."""
    standing_by_for: list[str] = msgspec.field(default_factory=list)
    leads: list[str] = msgspec.field(default_factory=list)


class Instances(msgspec.Struct, frozen=True):
    now: datetime
    oldest_beat: float | None
    """Seconds since the one was heard of that has been silent longest; None: nobody is there."""
    instances: list[Instance]


async def instances(app: Rota) -> Instances:
    database = (await app.open()).database
    [[_, workers, standing_by, leaders, [now]]] = await database.exchange(
        [
            [
                meters.bound(ANSWER_WITHIN),
                views.workers(),
                meters.instances(),
                standing.leaders(),
                views.clock(),
            ]
        ]
    )
    found = merge(workers, standing_by, leaders, now, app.settings.dead_after)
    oldest = max((each.silent_for for each in found), default=None)
    return Instances(now, oldest, found)


def merge(
    workers: list[WorkerDetail],
    standing_by: list[InstanceLine],
    leaders: list[LeaderLine],
    now: datetime,
    dead_after: float,
) -> list[Instance]:
    me = (socket.gethostname(), os.getpid())
    # By its place: one process may have been several workers, but is only the last of them.
    found: dict[tuple[str, int], Instance] = {}
    for each in workers:
        silent = (now - each.beat).total_seconds()
        asked = each.state == "active" and each.asked is not None
        found[each.host, each.pid] = Instance(
            host=each.host,
            pid=each.pid,
            here=(each.host, each.pid) == me,
            state="silent" if silent > dead_after else "draining" if asked else each.state,
            version=each.version,
            engine=each.engine,
            worker=each.worker,
            running=each.running,
            concurrency=each.capacity,
            load=round(each.running / max(each.capacity, 1), 3),
            lag=each.lag,
            queues=each.queues,
            started=each.started,
            heard=each.beat,
            silent_for=round(max(silent, 0.0), 3),
        )
    for one in standing_by:
        place = (one.host, one.pid)
        if place not in found:
            found[place] = Instance(
                host=one.host,
                pid=one.pid,
                here=place == me,
                state="standing by",
                version=one.version,
                started=one.started,
                heard=one.seen,
                silent_for=round(max((now - one.seen).total_seconds(), 0.0), 3),
            )
        found[place].services = sorted(one.running)
        found[place].standing_by_for = sorted(set(one.services) - set(one.running))
    for leader in leaders:
        if leader.alive and leader.host is not None and leader.pid is not None:
            led = found.get((leader.host, leader.pid))
            if led is not None:
                led.leads.append(leader.name)
    return list(found.values())

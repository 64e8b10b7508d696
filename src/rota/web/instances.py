"""List of instances: every worker, and every instance that stands by for services."""

from __future__ import annotations

import os
import socket
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from rota.operations.documents import extend
from rota.operations.workers import worker_state
from rota.store import metrics
from rota.store.metrics import ServiceInstanceRow
from rota.store.read import coordination, runs
from rota.store.read.coordination import LeaderRow
from rota.store.read.runs import WorkerDetailRow

if TYPE_CHECKING:
    from rota.app import Rota

QUERY_TIMEOUT_SECONDS = 5.0


class InstanceDocument(msgspec.Struct, kw_only=True):
    host: str
    pid: int
    is_self: bool
    """True for the instance that answers."""
    state: str
    """active, draining or silent for a worker; "standing by" for an instance without one."""
    version: str
    rota_version: str | None = None
    worker: int | None = None
    running: int = 0
    capacity: int = 0
    load: float = 0.0
    """Running jobs divided by capacity."""
    lag: float = 0.0
    queues: list[str] = msgspec.field(default_factory=list)
    started: datetime
    last_seen: datetime
    """Time of the last heartbeat."""
    silent_seconds: float
    """Seconds since the last heartbeat."""
    services: list[str] = msgspec.field(default_factory=list)
    """Services that this instance runs."""
    standby_services: list[str] = msgspec.field(default_factory=list)
    leads: list[str] = msgspec.field(default_factory=list)


class InstanceList(msgspec.Struct, frozen=True):
    now: datetime
    max_silent_seconds: float | None
    """The longest time since a heartbeat of any instance; None if there are no instances."""
    instances: list[InstanceDocument]


async def read_instances(app: Rota) -> InstanceList:
    database = (await app.open()).database
    [[_, workers, standing_by, leaders, [now]]] = await database.pipeline(
        [
            [
                metrics.set_timeout(QUERY_TIMEOUT_SECONDS),
                runs.workers(),
                metrics.service_instances(),
                coordination.leaders(),
                runs.database_time(),
            ]
        ]
    )
    found = merge(workers, standing_by, leaders, now, app.settings.dead_after)
    oldest = max((each.silent_seconds for each in found), default=None)
    return InstanceList(now, oldest, found)


def merge(
    workers: list[WorkerDetailRow],
    standing_by: list[ServiceInstanceRow],
    leaders: list[LeaderRow],
    now: datetime,
    dead_after: float,
) -> list[InstanceDocument]:
    own_process = (socket.gethostname(), os.getpid())
    # By host and process id: a process may have registered several workers, of which only the last counts.
    found: dict[tuple[str, int], InstanceDocument] = {}
    for each in workers:
        silent_seconds = (now - each.last_beat).total_seconds()
        found[each.host, each.pid] = extend(
            InstanceDocument,
            each,
            is_self=(each.host, each.pid) == own_process,
            state=worker_state(each, now, dead_after),
            load=round(each.running / max(each.capacity, 1), 3),
            last_seen=each.last_beat,
            silent_seconds=round(max(silent_seconds, 0.0), 3),
        )
    for standby in standing_by:
        process = (standby.host, standby.pid)
        if process not in found:
            found[process] = InstanceDocument(
                host=standby.host,
                pid=standby.pid,
                is_self=process == own_process,
                state="standing by",
                version=standby.version,
                started=standby.started,
                last_seen=standby.last_seen,
                silent_seconds=round(max((now - standby.last_seen).total_seconds(), 0.0), 3),
            )
        found[process].services = sorted(standby.running)
        found[process].standby_services = sorted(set(standby.services) - set(standby.running))
    for leader in leaders:
        if leader.alive and leader.host is not None and leader.pid is not None:
            instance = found.get((leader.host, leader.pid))
            if instance is not None:
                instance.leads.append(leader.name)
    return list(found.values())

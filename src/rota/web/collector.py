"""What was counted and how it stands, in the words of `metrics`, as Prometheus reads it.

The registry is made for each answer and is nobody else's: the process's own metrics are where they were.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from rota.engine.meters import OUTCOMES
from rota.model.histogram import Histogram
from rota.web.figures import Figures, looks
from rota.web.metrics import FAMILIES

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.app.client import Client

Samples = Iterable[tuple[Sequence[str], float | Histogram]]
"""Values, each with those of its labels."""

Shown = Iterator[tuple[str, Samples]]

WORKER_STATES = ("active", "draining", "silent", "dead")


async def expose(app: Rota, accept: str | None = None) -> tuple[bytes, str]:
    """All metrics, and the content type they are written in: the one that is asked for, if it is known."""
    figures = await looks(app).latest()
    reasons = await app.readiness.reasons()
    began = time.perf_counter()
    await asyncio.sleep(0)
    turn = time.perf_counter() - began
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Shown(list(_all(app, figures, ready=not reasons, turn=turn))))
    encode, content_type = choose_encoder(accept or "")
    return encode(registry), content_type


class _Shown:
    def __init__(self, shown: Sequence[tuple[str, Samples]]) -> None:
        self._shown = shown

    def collect(self) -> Iterable[Metric]:
        for name, samples in self._shown:
            family = FAMILIES[name]
            metric: Metric
            if family.kind == "histogram":
                metric = histogram = HistogramMetricFamily(name, family.help, labels=family.labels)
                for labels, each in samples:
                    assert isinstance(each, Histogram)
                    histogram.add_metric(labels, each.cumulative(), each.total)
            elif family.kind == "counter":
                metric = counter = CounterMetricFamily(name, family.help, labels=family.labels)
                for labels, each in samples:
                    assert not isinstance(each, Histogram)
                    counter.add_metric(labels, each)
            else:
                metric = gauge = GaugeMetricFamily(name, family.help, labels=family.labels)
                for labels, each in samples:
                    assert not isinstance(each, Histogram)
                    gauge.add_metric(labels, each)
            yield metric


def _all(app: Rota, figures: Figures | None, *, ready: bool, turn: float) -> Shown:
    yield "rota_build_info", {(version("rota"), app.settings.version): 1}.items()
    yield "rota_ready", _one(ready)
    yield "rota_draining", _one(app.readiness.draining)
    yield "rota_database_up", _one(looks(app).answered)
    yield from _counted(app)
    client = app.opened()
    if client is not None:
        yield from _had(client, turn)
    if figures is not None:
        yield from _fleet(figures)


def _counted(app: Rota) -> Shown:
    """What workers here have done."""
    yield "rota_jobs_arrived_total", list(app.counted.arrived.items())
    meters = app.counted.sum()
    lines = meters.lines
    for name in ("claimed", "retried", "slept", "given_back"):
        yield (
            f"rota_jobs_{name}_total",
            {at: getattr(line, name) for at, line in lines.items()}.items(),
        )
    yield (
        "rota_jobs_started_total",
        {(task,): count for task, count in meters.started.items()}.items(),
    )
    yield (
        "rota_jobs_finished_total",
        {
            (*at, outcome): getattr(line, outcome)
            for at, line in lines.items()
            for outcome in OUTCOMES
        }.items(),
    )
    yield "rota_job_duration_seconds", {at: line.took for at, line in lines.items()}.items()
    yield "rota_job_wait_seconds", {at: line.waited for at, line in lines.items()}.items()
    yield "rota_claims_total", {("some",): meters.found, ("none",): meters.empty}.items()
    yield "rota_claim_batch_size", {(): meters.batches}.items()
    yield "rota_exchange_seconds", {(): meters.exchanges}.items()
    yield "rota_jobs_reaped_total", _one(meters.reaped)
    yield "rota_workers_declared_dead_total", _one(meters.declared_dead)
    yield "rota_outcomes_refused_total", _one(meters.refused)
    yield "rota_schedule_lateness_seconds", {(): meters.lateness}.items()


def _had(client: Client, turn: float) -> Shown:
    """What this instance has, and how it coordinates."""
    worker = client.worker if client.worker is not None and client.worker.lives else None
    lag, running, concurrency = turn, 0, 0
    if worker is not None:
        life = worker.life
        lag, running, concurrency = life.heart.lag, life.desk.running, life.desk.capacity
    yield "rota_loop_lag_seconds", _one(lag)
    yield "rota_worker_running", _one(running)
    yield "rota_worker_concurrency", _one(concurrency)
    pool = client.database.connections
    yield "rota_pool_connections", {("busy",): pool.busy, ("idle",): pool.idle}.items()
    yield "rota_pool_limit", _one(pool.limit)
    yield "rota_pool_waits_total", _one(pool.waits)
    yield "rota_notifications_sent_total", _one(client.news.sent)
    yield "rota_notifications_heard_total", _one(client.wakeups.heard)
    yield "rota_listening", _one(client.wakeups.listens)
    counts = client.counts
    yield "rota_leader_elections_total", _one(counts.elected)
    yield "rota_leaderships_lost_total", _one(counts.deposed)
    yield "rota_locks_acquired_total", _one(counts.acquired)
    yield "rota_lock_waits_total", _one(counts.waits.count)
    yield "rota_lock_wait_seconds", {(): counts.waits}.items()
    yield "rota_locks_lost_total", _one(counts.lost)


def _fleet(figures: Figures) -> Shown:
    """What is so in the database."""
    fleet, queues = figures.fleet, figures.queues
    yield "rota_queue_depth", {(each.queue,): each.backlog for each in queues}.items()
    yield "rota_queue_oldest_seconds", {(each.queue,): each.oldest for each in queues}.items()
    yield "rota_queue_paused", {(queue,): 1 for queue in fleet.paused}.items()
    yield "rota_wanted_workers", {(each.queue,): each.wanted for each in queues}.items()
    yield "rota_jobs_held", _one(fleet.held)
    yield "rota_jobs_asleep", _one(fleet.asleep)
    yield "rota_jobs_quarantined", _one(fleet.quarantined)
    yield "rota_workers", {(state,): fleet.workers.get(state, 0) for state in WORKER_STATES}.items()
    yield "rota_workers_running", _one(fleet.running)
    yield "rota_workers_concurrency", _one(fleet.concurrency)
    yield "rota_leader_term", {(name,): term for name, term in fleet.leaders.items()}.items()
    yield "rota_schedule_overdue_seconds", _one(fleet.overdue or 0.0)
    yield "rota_notify_queue_usage_ratio", _one(fleet.notify)
    yield "rota_alerts_open", {(kind,): count for kind, count in fleet.alerts.items()}.items()
    yield "rota_fleet_age_seconds", _one(figures.age)


def _one(value: float) -> Samples:
    return [((), value)]

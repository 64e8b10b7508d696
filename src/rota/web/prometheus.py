"""Values of all metrics in Prometheus format, as defined in `metric_definitions`.

Each response uses its own registry, so the default registry of the process is not changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from rota.engine.telemetry.counters import OUTCOMES
from rota.model.histogram import Histogram
from rota.web.fleet_metrics import FleetMetrics, cached_fleet_metrics
from rota.web.metric_definitions import METRIC_FAMILIES, MetricKind

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.app.client import Client

Samples = Iterable[tuple[Sequence[str], float | Histogram]]
"""Pairs of label values and the value."""

MetricSamples = Iterator[tuple[str, Samples]]

WORKER_STATES = ("active", "draining", "silent", "dead")


async def render_metrics(app: Rota, accept: str | None = None) -> tuple[bytes, str]:
    """Return all metrics and their content type, negotiated by the Accept header."""
    fleet_metrics = await cached_fleet_metrics(app).latest()
    reasons = await app.readiness.reasons()
    began = time.perf_counter()
    await asyncio.sleep(0)
    loop_lag = time.perf_counter() - began
    registry = CollectorRegistry(auto_describe=False)
    registry.register(
        _MetricView(list(_all_metrics(app, fleet_metrics, ready=not reasons, loop_lag=loop_lag)))
    )
    encode, content_type = choose_encoder(accept or "")
    return encode(registry), content_type


_FAMILY_TYPES: dict[MetricKind, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class _MetricView:
    def __init__(self, metrics: Sequence[tuple[str, Samples]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        for name, samples in self._metrics:
            family = METRIC_FAMILIES[name]
            metric = _FAMILY_TYPES[family.kind](name, family.help, labels=family.labels)
            for labels, each in samples:
                assert isinstance(each, Histogram) == (family.kind == "histogram"), name
                values = (each.cumulative(), each.total) if isinstance(each, Histogram) else (each,)
                metric.add_metric(labels, *values)
            yield metric


def _all_metrics(
    app: Rota, fleet_metrics: FleetMetrics | None, *, ready: bool, loop_lag: float
) -> MetricSamples:
    yield "rota_build_info", {(version("pgrota"), app.settings.version): 1}.items()
    yield "rota_ready", _single(ready)
    yield "rota_draining", _single(app.readiness.is_draining)
    yield "rota_database_up", _single(cached_fleet_metrics(app).database_up)
    yield from _worker_metrics(app)
    client = app.database.current_client()
    if client is not None:
        yield from _instance_metrics(client, loop_lag)
    if fleet_metrics is not None:
        yield from _fleet_metrics(fleet_metrics)


def _worker_metrics(app: Rota) -> MetricSamples:
    """Yield the counters of the workers of this process."""
    yield "rota_jobs_arrived_total", list(app.process_counters.enqueued.items())
    counters = app.process_counters.sum()

    def by_task(name: str) -> Samples:
        return {labels: getattr(each, name) for labels, each in counters.by_task.items()}.items()

    for name in ("claimed", "retried", "suspended", "returned"):
        yield f"rota_jobs_{name}_total", by_task(name)
    yield (
        "rota_jobs_started_total",
        {(task,): count for task, count in counters.started.items()}.items(),
    )
    yield (
        "rota_jobs_finished_total",
        {
            (*labels, outcome): getattr(task_counters, outcome)
            for labels, task_counters in counters.by_task.items()
            for outcome in OUTCOMES
        }.items(),
    )
    yield "rota_job_duration_seconds", by_task("durations")
    yield "rota_job_wait_seconds", by_task("wait_times")
    yield (
        "rota_claims_total",
        {("some",): counters.claims_with_jobs, ("none",): counters.empty_claims}.items(),
    )
    yield "rota_claim_batch_size", {(): counters.claim_sizes}.items()
    yield "rota_claim_round_trip_seconds", {(): counters.round_trips}.items()
    yield "rota_jobs_reaped_total", _single(counters.reaped)
    yield "rota_workers_declared_dead_total", _single(counters.declared_dead)
    yield "rota_outcomes_refused_total", _single(counters.refused)
    yield "rota_schedule_lateness_seconds", {(): counters.lateness}.items()


def _instance_metrics(client: Client, loop_lag: float) -> MetricSamples:
    """Yield metrics of this instance: its worker, connection pool, notifications and coordination."""
    worker = client.worker if client.worker is not None and client.worker.is_running else None
    lag, running, concurrency = loop_lag, 0, 0
    if worker is not None:
        session = worker.session
        lag, running, concurrency = (
            session.heartbeat.lag_seconds,
            session.slots.running,
            session.slots.capacity,
        )
    yield "rota_loop_lag_seconds", _single(lag)
    yield "rota_worker_running", _single(running)
    yield "rota_worker_concurrency", _single(concurrency)
    pool = client.database.pool
    yield "rota_pool_connections", {("busy",): pool.busy, ("idle",): pool.idle}.items()
    yield "rota_pool_limit", _single(pool.limit)
    yield "rota_pool_waits_total", _single(pool.wait_count)
    yield "rota_notifications_sent_total", _single(client.notifier.sent)
    yield "rota_notifications_received_total", _single(client.listener.received)
    yield "rota_listening", _single(client.listener.is_connected)
    counts = client.coordination_counters
    yield "rota_leader_elections_total", _single(counts.elections_won)
    yield "rota_leaderships_lost_total", _single(counts.terms_lost)
    yield "rota_locks_acquired_total", _single(counts.locks_acquired)
    yield "rota_lock_waits_total", _single(counts.wait_seconds.count)
    yield "rota_lock_wait_seconds", {(): counts.wait_seconds}.items()
    yield "rota_locks_lost_total", _single(counts.locks_lost)


def _fleet_metrics(fleet_metrics: FleetMetrics) -> MetricSamples:
    """Yield metrics of the database, which are the same for all instances."""
    fleet, queues = fleet_metrics.fleet, fleet_metrics.queues
    yield "rota_queue_depth", {(each.queue,): each.backlog for each in queues}.items()
    yield "rota_queue_oldest_seconds", {(each.queue,): each.oldest for each in queues}.items()
    yield "rota_queue_paused", {(queue,): 1 for queue in fleet.paused_queues}.items()
    yield "rota_desired_workers", {(each.queue,): each.desired for each in queues}.items()
    yield "rota_jobs_held", _single(fleet.held)
    yield "rota_jobs_sleeping", _single(fleet.sleeping)
    yield "rota_jobs_quarantined", _single(fleet.quarantined)
    yield "rota_workers", {(state,): fleet.workers.get(state, 0) for state in WORKER_STATES}.items()
    yield "rota_workers_running", _single(fleet.running)
    yield "rota_workers_concurrency", _single(fleet.concurrency)
    yield "rota_leader_term", {(name,): term for name, term in fleet.leaders.items()}.items()
    yield "rota_schedule_overdue_seconds", _single(fleet.schedule_late_seconds or 0.0)
    yield "rota_notify_queue_usage_ratio", _single(fleet.notify_queue_usage)
    yield "rota_alerts_open", {(kind,): count for kind, count in fleet.alerts.items()}.items()
    yield "rota_fleet_metrics_age_seconds", _single(fleet_metrics.age)


def _single(value: float) -> Samples:
    return [((), value)]

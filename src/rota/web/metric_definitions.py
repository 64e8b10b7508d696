"""Definitions of all metrics: name, kind, help text and labels.

Labels are bounded: queues and tasks named in code; outcomes, states and kinds from fixed sets; and at most
a hundred names of each kind, the rest as "other". No label is a run, a job, a worker or a lock.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

MetricKind = Literal["counter", "gauge", "histogram"]


class MetricFamily(NamedTuple):
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


_counter = partial(MetricFamily, "counter")
_gauge = partial(MetricFamily, "gauge")
_histogram = partial(MetricFamily, "histogram")

# Names as Prometheus shows them: a counter ends in _total, a histogram has _bucket, _sum and _count. These
# metrics describe this instance.
INSTANCE_METRICS: dict[str, MetricFamily] = {
    "rota_build_info": _gauge(
        "Always 1; the labels hold the versions.", ("rota_version", "version")
    ),
    "rota_ready": _gauge("1 while /health/ready answers 200."),
    "rota_draining": _gauge("1 while this instance drains."),
    "rota_jobs_arrived_total": _counter("Jobs started by this instance.", ("queue", "task")),
    "rota_jobs_claimed_total": _counter("Jobs claimed from a queue.", ("queue", "task")),
    "rota_jobs_started_total": _counter("Attempts started.", ("task",)),
    "rota_jobs_finished_total": _counter(
        "Jobs that ended: succeeded, failed, cancelled, expired, skipped or quarantined.",
        ("queue", "task", "outcome"),
    ),
    "rota_jobs_retried_total": _counter("Attempts that failed and are retried.", ("queue", "task")),
    "rota_jobs_suspended_total": _counter(
        "Jobs suspended until a time or a signal.", ("queue", "task")
    ),
    "rota_jobs_returned_total": _counter(
        "Jobs returned to their queue unfinished; the attempt does not count.", ("queue", "task")
    ),
    "rota_job_duration_seconds": _histogram("Duration of ended attempts.", ("queue", "task")),
    "rota_job_wait_seconds": _histogram(
        "Time from queued to claimed, of jobs that were queued at their start.", ("queue", "task")
    ),
    "rota_claims_total": _counter("Claims, by result: jobs found or none.", ("result",)),
    "rota_claim_batch_size": _histogram("Jobs per claim that found any."),
    "rota_claim_round_trip_seconds": _histogram(
        "Duration of round trips that record outcomes and claim jobs."
    ),
    "rota_jobs_reaped_total": _counter("Jobs that this worker took back from dead workers."),
    "rota_workers_declared_dead_total": _counter("Workers that this worker declared dead."),
    "rota_outcomes_refused_total": _counter(
        "Outcomes refused because this instance no longer held the claim."
    ),
    "rota_leader_elections_total": _counter("Elections won by this instance."),
    "rota_leaderships_lost_total": _counter(
        "Leaderships that this instance lost without resigning."
    ),
    "rota_locks_acquired_total": _counter("Locks and permits acquired by this instance."),
    "rota_lock_waits_total": _counter("Acquisitions of locks and permits that had to wait."),
    "rota_lock_wait_seconds": _histogram("Time waited for locks and permits."),
    "rota_locks_lost_total": _counter(
        "Locks and permits that this instance lost while it held them."
    ),
    "rota_schedule_lateness_seconds": _histogram("Time from a tick to the start of its run."),
    "rota_loop_lag_seconds": _gauge("Lag of the event loop."),
    "rota_worker_running": _gauge("Jobs running on this worker."),
    "rota_worker_concurrency": _gauge("Maximum number of jobs running on this worker."),
    "rota_pool_connections": _gauge("Connections of the pool that are busy or idle.", ("state",)),
    "rota_pool_limit": _gauge("Maximum number of connections of the pool."),
    "rota_pool_waits_total": _counter(
        "Requests for a connection while all connections of the pool were busy."
    ),
    "rota_notifications_sent_total": _counter("NOTIFYs sent after a commit."),
    "rota_notifications_received_total": _counter("Notifications received."),
    "rota_listening": _gauge("1 while notifications can be received, 0 while only polling."),
    "rota_database_up": _gauge("1 if the last query to the database was answered."),
}

# State of the database, the same from every instance: aggregate with max, not with sum.
FLEET_METRICS: dict[str, MetricFamily] = {
    "rota_queue_depth": _gauge("Queued jobs; counted to 20,000, estimated beyond.", ("queue",)),
    "rota_queue_oldest_seconds": _gauge("Time since the oldest queued job was queued.", ("queue",)),
    "rota_queue_paused": _gauge("1 for each queue that is paused.", ("queue",)),
    "rota_jobs_held": _gauge("Jobs held by workers: running, or claimed and about to run."),
    "rota_jobs_sleeping": _gauge("Jobs that wait for a time or a signal, counted to 100,000."),
    "rota_jobs_quarantined": _gauge("Jobs in quarantine, counted to 10,000."),
    "rota_workers": _gauge(
        "Workers by state: active, draining, silent, dead within a day.", ("state",)
    ),
    "rota_workers_running": _gauge("Running jobs, as of the last heartbeats."),
    "rota_workers_concurrency": _gauge("Maximum number of running jobs on active workers."),
    "rota_desired_workers": _gauge(
        "Workers desired for a queue; see `rota autoscale`.", ("queue",)
    ),
    "rota_leader_term": _gauge(
        "The number of a leader's term: it rises with each election.", ("leader",)
    ),
    "rota_schedule_overdue_seconds": _gauge("Delay of the most overdue schedule."),
    "rota_notify_queue_usage_ratio": _gauge(
        "Used share of the server's notification queue, from 0 to 1."
    ),
    "rota_alerts_open": _gauge("Open alerts.", ("kind",)),
    "rota_fleet_metrics_age_seconds": _gauge(
        "Age of these figures; it grows while the database does not answer."
    ),
}

METRIC_FAMILIES: dict[str, MetricFamily] = INSTANCE_METRICS | FLEET_METRICS

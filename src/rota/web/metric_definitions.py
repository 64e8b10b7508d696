"""Definitions of all metrics: name, kind, help text and labels.

Labels are bounded: queues and tasks named in code; outcomes, states and kinds from fixed sets; and at most
a hundred names of each kind, the rest as "other". No label is a run, a job, a worker or a lock.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

MetricKind = Literal["counter", "gauge", "histogram"]


class MetricFamily(NamedTuple):
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


# Names as Prometheus shows them: a counter ends in _total, a histogram has _bucket, _sum and _count. These
# metrics describe this instance.
INSTANCE_METRICS: dict[str, MetricFamily] = {
    "rota_build_info": MetricFamily("gauge", "1; which code this is.", ("rota_version", "version")),
    "rota_ready": MetricFamily("gauge", "1 while /health/ready says 200."),
    "rota_draining": MetricFamily("gauge", "1 while this instance drains."),
    "rota_jobs_arrived_total": MetricFamily(
        "counter", "Jobs started from here.", ("queue", "task")
    ),
    "rota_jobs_claimed_total": MetricFamily(
        "counter", "Jobs taken from a queue.", ("queue", "task")
    ),
    "rota_jobs_started_total": MetricFamily("counter", "Attempts whose code began.", ("task",)),
    "rota_jobs_finished_total": MetricFamily(
        "counter",
        "Jobs that came to an end: succeeded, failed, cancelled, expired, skipped or quarantined.",
        ("queue", "task", "outcome"),
    ),
    "rota_jobs_retried_total": MetricFamily(
        "counter", "Attempts that failed and are followed by another.", ("queue", "task")
    ),
    "rota_jobs_suspended_total": MetricFamily(
        "counter", "Jobs that left to wait for a time or a signal.", ("queue", "task")
    ),
    "rota_jobs_returned_total": MetricFamily(
        "counter", "Jobs that went back unfinished, the attempt uncounted.", ("queue", "task")
    ),
    "rota_job_duration_seconds": MetricFamily(
        "histogram", "How long attempts took that ended.", ("queue", "task")
    ),
    "rota_job_wait_seconds": MetricFamily(
        "histogram",
        "How long jobs that were ready from the start waited to be claimed.",
        ("queue", "task"),
    ),
    "rota_claims_total": MetricFamily("counter", "Claims made: some, or none found.", ("result",)),
    "rota_claim_batch_size": MetricFamily("histogram", "Jobs in a claim that found some."),
    "rota_claim_round_trip_seconds": MetricFamily(
        "histogram", "How long round trips took that record outcomes and claim jobs."
    ),
    "rota_jobs_reaped_total": MetricFamily(
        "counter", "Jobs taken back from dead workers, by this one."
    ),
    "rota_workers_declared_dead_total": MetricFamily(
        "counter", "Workers declared dead, by this one."
    ),
    "rota_outcomes_refused_total": MetricFamily(
        "counter", "Outcomes of this instance refused: the jobs were no longer its own."
    ),
    "rota_leader_elections_total": MetricFamily("counter", "Elections that this instance has won."),
    "rota_leaderships_lost_total": MetricFamily("counter", "Leaderships lost here, not resigned."),
    "rota_locks_acquired_total": MetricFamily("counter", "Locks and permits taken here."),
    "rota_lock_waits_total": MetricFamily(
        "counter", "Locks and permits that were not free at once."
    ),
    "rota_lock_wait_seconds": MetricFamily("histogram", "How long was waited for those."),
    "rota_locks_lost_total": MetricFamily(
        "counter", "Locks and permits lost while relied on here."
    ),
    "rota_schedule_lateness_seconds": MetricFamily(
        "histogram", "How late runs of schedules were started, by their ticks."
    ),
    "rota_loop_lag_seconds": MetricFamily("gauge", "How late the event loop is."),
    "rota_worker_running": MetricFamily("gauge", "Jobs that run here now."),
    "rota_worker_concurrency": MetricFamily("gauge", "Jobs that may run here at once."),
    "rota_pool_connections": MetricFamily(
        "gauge", "Connections of the pool that are busy or idle.", ("state",)
    ),
    "rota_pool_limit": MetricFamily("gauge", "Connections that the pool may have."),
    "rota_pool_waits_total": MetricFamily(
        "counter", "Times all connections of the pool were busy."
    ),
    "rota_notifications_sent_total": MetricFamily("counter", "NOTIFYs sent after a commit."),
    "rota_notifications_received_total": MetricFamily("counter", "Notifications heard."),
    "rota_listening": MetricFamily(
        "gauge", "1 while notifications can be heard, 0: polling alone."
    ),
    "rota_database_up": MetricFamily("gauge", "1 if the last look at the database was answered."),
}

# State of the database, the same from every instance: aggregate with max, not with sum.
FLEET_METRICS: dict[str, MetricFamily] = {
    "rota_queue_depth": MetricFamily(
        "gauge", "Jobs that are ready; counted to 20,000, estimated beyond.", ("queue",)
    ),
    "rota_queue_oldest_seconds": MetricFamily(
        "gauge", "How long the oldest ready job has been so.", ("queue",)
    ),
    "rota_queue_paused": MetricFamily("gauge", "1 for each queue that is paused.", ("queue",)),
    "rota_jobs_held": MetricFamily("gauge", "Jobs that workers hold: running, or about to."),
    "rota_jobs_sleeping": MetricFamily(
        "gauge", "Jobs that wait for a time or a signal, to 100,000."
    ),
    "rota_jobs_quarantined": MetricFamily("gauge", "Jobs in quarantine, to 10,000."),
    "rota_workers": MetricFamily(
        "gauge", "Workers by state: active, draining, silent, dead within a day.", ("state",)
    ),
    "rota_workers_running": MetricFamily("gauge", "Jobs that run, as of the last beats."),
    "rota_workers_concurrency": MetricFamily(
        "gauge", "Jobs that may run at once on active workers."
    ),
    "rota_desired_workers": MetricFamily(
        "gauge", "Workers wanted for a queue; see `rota autoscale`.", ("queue",)
    ),
    "rota_leader_term": MetricFamily(
        "gauge", "The number of a leader's term: it rises with each election.", ("leader",)
    ),
    "rota_schedule_overdue_seconds": MetricFamily(
        "gauge", "By how much the schedule that is most overdue is late."
    ),
    "rota_notify_queue_usage_ratio": MetricFamily(
        "gauge", "How much of the server's notification queue is in use, from 0 to 1."
    ),
    "rota_alerts_open": MetricFamily("gauge", "Open alerts.", ("kind",)),
    "rota_fleet_metrics_age_seconds": MetricFamily(
        "gauge", "How old these figures are: more than a few, and the database does not answer."
    ),
}

METRIC_FAMILIES: dict[str, MetricFamily] = INSTANCE_METRICS | FLEET_METRICS

"""Pure functions from an observation of the fleet to open and closed alerts.

A value over its limit is a finding and opens an alert at once. A value just below its limit is a finding
too: it opens nothing, but keeps an open alert open (`exceeds_limit` is false). An alert is closed only
after its condition has been false for `CLOSE_AFTER_SECONDS`, so that an intermittent condition is one alert
and not many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec

from rota.model import alert_rules as kinds
from rota.model.alert_rules import OFF, AlertRules
from rota.model.explanation import unserved_reason
from rota.model.text import counted

MAX_COUNTED = 1000
"""Counts stop at this number."""

_counted = partial(counted, limit=MAX_COUNTED)


class QueueHead(msgspec.Struct, frozen=True):
    """First job of a lane."""

    queue: str
    priority: int
    seq: int
    job: int
    task: str
    age: float | None
    """Seconds for which the job has been queued at least, according to its row; None if the row does not
    show it."""
    serving_workers: int
    """Live workers that serve the queue."""
    eligible_workers: int
    """Serving workers that know the task. `running` and `capacity` are their totals."""
    running: int
    capacity: int
    paused: bool = False

    @property
    def lane_key(self) -> str:
        return f"{self.priority} {self.queue}"


class DeadWorker(msgspec.Struct, frozen=True):
    worker: int
    host: str
    pid: int
    queues: list[str]
    last_beat: datetime
    """Time of the last heartbeat."""


class LiveWorker(msgspec.Struct, frozen=True):
    queues: list[str]
    started: datetime


class LateSchedule(msgspec.Struct, frozen=True):
    schedule: str
    target: str
    late_seconds: float
    has_worker: bool
    """True if a live worker knows the target."""
    reason: str | None


class FailingSchedule(msgspec.Struct, frozen=True):
    schedule: str
    failures: int
    paused: bool
    run: int | None


class QuarantinedJobs(msgspec.Struct, frozen=True):
    queue: str
    jobs: int
    job: int
    task: str


class RefusedOutcomes(msgspec.Struct, frozen=True):
    host: str
    jobs: int


class ServerLoad(msgspec.Struct, frozen=True):
    snapshot_age: float | None
    """Age in seconds of the oldest transaction that prevents the removal of dead rows. The next three
    fields describe its session."""
    pid: int | None
    application: str | None
    state: str | None
    notify_usage: float
    """Fraction of the notification queue that is used, from 0 to 1."""


class FleetSnapshot(msgspec.Struct, frozen=True):
    now: datetime
    heads: Sequence[QueueHead] = ()
    dead: Sequence[DeadWorker] = ()
    alive: Sequence[LiveWorker] = ()
    late: Sequence[LateSchedule] = ()
    failing: Sequence[FailingSchedule] = ()
    quarantined: Sequence[QuarantinedJobs] = ()
    refused: Sequence[RefusedOutcomes] = ()
    server: Sequence[ServerLoad] = ()


CLEAR_FRACTION = 0.5
"""An alert clears when its value falls below this fraction of the limit."""

REFUSED_WINDOW_SECONDS = 300.0
"""Period over which refused outcomes are counted."""

DATABASE_SUBJECT = "database"


class Finding(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    message: str
    exceeds_limit: bool = True
    """True if the value is over its limit. False if it is just below: such a finding only keeps an open
    alert open."""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.subject


HeadHistory = Mapping[str, tuple[int, float]]
"""For each lane: the seq of its first job and the time since when it has been first,
in seconds since 1970."""


def update_history(history: HeadHistory, heads: Iterable[QueueHead], now: datetime) -> HeadHistory:
    """Return the history after this observation.

    The row of a job that returned to the queue does not show since when it has been queued. A job that is
    still first at the next observation has been queued at least since the previous one.
    """
    known: dict[str, tuple[int, float]] = {}
    for head in heads:
        seq, since = history.get(head.lane_key, (None, 0.0))
        same = seq == head.seq and since <= now.timestamp()
        known[head.lane_key] = (head.seq, since if same else now.timestamp())
    return known


def evaluate_rules(
    rules: AlertRules, snapshot: FleetSnapshot, history: HeadHistory
) -> list[Finding]:
    return [
        *_old_queues(rules, snapshot, history),
        *_dead_workers(rules, snapshot),
        *_late_schedules(rules, snapshot),
        *_failing_schedules(rules, snapshot),
        *_quarantined_jobs(rules, snapshot),
        *_refused_outcomes(rules, snapshot),
        *_server_load(rules, snapshot),
    ]


def _old_queues(
    rules: AlertRules, snapshot: FleetSnapshot, history: HeadHistory
) -> Iterable[Finding]:
    oldest: dict[str, tuple[float, QueueHead]] = {}
    for head in snapshot.heads:
        _, since = history.get(head.lane_key, (0, snapshot.now.timestamp()))
        age = max(head.age or 0.0, snapshot.now.timestamp() - since)
        if head.queue not in oldest or age > oldest[head.queue][0]:
            oldest[head.queue] = age, head
    for queue, (age, head) in oldest.items():
        limit = rules.limit(kinds.QUEUE_OLD, queue)
        if age >= limit * CLEAR_FRACTION:
            message = (
                f"in queue {queue!r} job {head.job} ({head.task}) has been queued for {age:.0f} s, "
                f"{limit:.0f} s are allowed; {_explain_waiting(head)}"
            )
            yield Finding(kinds.QUEUE_OLD, queue, message, age >= limit)


def _explain_waiting(head: QueueHead) -> str:
    if head.paused:
        return f"the queue is paused; `rota queues resume {head.queue}` resumes it"
    if not head.serving_workers:
        return f"{unserved_reason(0)}; start one with `rota worker … -q {head.queue}`"
    if not head.eligible_workers:
        return (
            f"{unserved_reason(head.serving_workers)}; deploy the code that has it, or cancel the "
            "waiting jobs"
        )
    return (
        f"{_counted(head.eligible_workers, 'worker')} can claim it, with {head.running} of at most "
        f"{head.capacity} jobs running; add workers, or check them (`rota workers`, `rota queues`)"
    )


def _dead_workers(rules: AlertRules, snapshot: FleetSnapshot) -> Iterable[Finding]:
    limit = rules.limit(kinds.WORKER_DEAD)
    if limit == OFF:
        return
    missing = {each.worker for each in unreplaced_workers(snapshot.dead, snapshot.alive)}
    by_host: dict[str, list[DeadWorker]] = defaultdict(list)
    for each in snapshot.dead:
        if each.worker in missing or (snapshot.now - each.last_beat).total_seconds() < limit:
            by_host[each.host].append(each)
    for host, died in by_host.items():
        last = max(died, key=lambda each: (each.last_beat, each.worker))
        others = f", and {_counted(len(died) - 1, 'other')} there" if len(died) > 1 else ""
        replacement = (
            "no worker has replaced it; start another"
            if last.worker in missing
            else "another worker has replaced it"
        )
        message = (
            f"worker {last.worker} on {host} (process {last.pid}) died; its last heartbeat was at "
            f"{last.last_beat:%Y-%m-%d %H:%M:%S} UTC{others}; its jobs returned to the queue, and "
            f"{replacement}. Check its log for the reason (out of memory?): `rota workers --all`, `rota "
            f"alerts close '{kinds.WORKER_DEAD}' {host}`"
        )
        yield Finding(kinds.WORKER_DEAD, host, message)


def unreplaced_workers(dead: Iterable[DeadWorker], alive: Iterable[LiveWorker]) -> list[DeadWorker]:
    """Return the dead workers without a replacement: a worker for the same queues that started later, one
    for each."""
    starts_by_queues: dict[tuple[str, ...], list[datetime]] = defaultdict(list)
    for worker in alive:
        starts_by_queues[tuple(sorted(worker.queues))].append(worker.started)
    for starts in starts_by_queues.values():
        starts.sort()
    missing = []
    # Latest first: a worker that can replace this one can also replace earlier ones.
    for each in sorted(dead, key=lambda each: (each.last_beat, each.worker), reverse=True):
        starts = starts_by_queues[tuple(sorted(each.queues))]
        if starts and starts[-1] > each.last_beat:
            starts.pop()
        else:
            missing.append(each)
    return missing


def _late_schedules(rules: AlertRules, snapshot: FleetSnapshot) -> Iterable[Finding]:
    limit = rules.limit(kinds.SCHEDULE_LATE)
    for each in snapshot.late:
        if each.late_seconds >= limit * CLEAR_FRACTION:
            message = (
                f"schedule {each.schedule!r} is late by {each.late_seconds:.0f} s, {limit:.0f} s are "
                f"allowed; {_explain_lateness(each)}"
            )
            yield Finding(kinds.SCHEDULE_LATE, each.schedule, message, each.late_seconds >= limit)


def _explain_lateness(late: LateSchedule) -> str:
    if not late.has_worker:
        return (
            f"no live worker knows {late.target!r}; start one that does, deploy the code that "
            "has it, or remove the schedule"
        )
    if late.reason:
        # Without the reason: it may quote the input, which the receivers of alerts may not be allowed to
        # read.
        return f"it was deferred; `rota schedules show {late.schedule}` shows the reason"
    return "are its workers well? (`rota workers`)"


def _failing_schedules(rules: AlertRules, snapshot: FleetSnapshot) -> Iterable[Finding]:
    limit = rules.limit(kinds.SCHEDULE_FAILS)
    if limit == OFF:
        return
    for each in snapshot.failing:
        if not each.failures:
            continue
        last = f", the last is run {each.run} (`rota show {each.run}`)" if each.run else ""
        consequence = (
            f"and was paused; fix the cause, then run `rota schedules resume {each.schedule}`"
            if each.paused
            else "and continues"
        )
        message = (
            f"schedule {each.schedule!r} has failed {each.failures} times in a row{last}, "
            f"{consequence}"
        )
        exceeds_limit = each.paused or each.failures >= limit
        yield Finding(kinds.SCHEDULE_FAILS, each.schedule, message, exceeds_limit)


def _quarantined_jobs(rules: AlertRules, snapshot: FleetSnapshot) -> Iterable[Finding]:
    for each in snapshot.quarantined:
        limit = rules.limit(kinds.QUARANTINE, each.queue)
        if each.jobs >= max(limit * CLEAR_FRACTION, 1):
            message = (
                f"queue {each.queue!r} has {_counted(each.jobs, 'job')} in quarantine, such as {each.job} "
                f"({each.task}), at which workers died again and again. Find out why, then `rota release "
                f"{each.job}` or `rota cancel {each.job}` (`rota quarantine` lists them)"
            )
            yield Finding(kinds.QUARANTINE, each.queue, message, each.jobs >= limit)


def _refused_outcomes(rules: AlertRules, snapshot: FleetSnapshot) -> Iterable[Finding]:
    limit = rules.limit(kinds.REFUSED)
    for each in snapshot.refused:
        if each.jobs >= max(limit * CLEAR_FRACTION, 1):
            message = (
                f"the database refused {_counted(each.jobs, 'completion')} from {each.host} within "
                f"{REFUSED_WINDOW_SECONDS / 60:.0f} minutes: their claims had been taken back, and the "
                "jobs run again on other workers. A worker on this host freezes, or does not reach the "
                "database for longer than ROTA_DEAD_AFTER: see its log, its lag in `rota workers`, and "
                "the network"
            )
            yield Finding(kinds.REFUSED, each.host, message, each.jobs >= limit)


def _server_load(rules: AlertRules, snapshot: FleetSnapshot) -> Iterable[Finding]:
    for each in snapshot.server:
        limit = rules.limit(kinds.SNAPSHOT_OLD)
        if each.snapshot_age is not None and each.snapshot_age >= limit * CLEAR_FRACTION:
            message = (
                f"a transaction has been open for {each.snapshot_age:.0f} s, {limit:.0f} s are allowed: "
                f"process {each.pid} of the server ({each.application or 'without a name'}, "
                f"{each.state}). Until it ends, vacuum cannot remove dead rows, and claims become slow. "
                f"End it where it runs, or by `select pg_terminate_backend({each.pid})`"
            )
            yield Finding(kinds.SNAPSHOT_OLD, DATABASE_SUBJECT, message, each.snapshot_age >= limit)
        limit = rules.limit(kinds.NOTIFY_FULL)
        if each.notify_usage >= limit * CLEAR_FRACTION:
            message = (
                f"the server's queue of notifications is {each.notify_usage:.0%} full, {limit:.0%} are "
                "allowed: a session that listens has a transaction open. When it is full, every NOTIFY "
                "fails, and with it the transaction. Find the oldest xact_start, and end that session"
            )
            yield Finding(kinds.NOTIFY_FULL, DATABASE_SUBJECT, message, each.notify_usage >= limit)


CLOSE_AFTER_SECONDS = 30.0
"""Seconds for which a condition must have been false before its alert is closed."""


class OpenAlert(msgspec.Struct, frozen=True):
    id: int
    kind: str
    subject: str
    message: str
    cleared_at: datetime | None


class AlertDecision(msgspec.Struct, frozen=True):
    raised: list[Finding] = []
    updated: list[tuple[int, str]] = []
    """Ids and messages of open alerts whose condition holds with a new message, or holds again."""
    cleared: list[int] = []
    """Ids of alerts whose condition has just become false."""
    closed: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.raised or self.updated or self.cleared or self.closed)


def decide(
    rules: AlertRules,
    findings: Sequence[Finding],
    open_alerts: Collection[OpenAlert],
    now: datetime,
    close_after: float = CLOSE_AFTER_SECONDS,
) -> AlertDecision:
    """Return the changes to the open alerts of the evaluated kinds."""
    decision = AlertDecision()
    by_key = {each.key: each for each in findings}
    for alert in open_alerts:
        finding = by_key.pop((alert.kind, alert.subject), None)
        if finding is not None:
            if finding.message != alert.message or alert.cleared_at is not None:
                decision.updated.append((alert.id, finding.message))
        elif not rules.is_enabled(alert.kind):
            decision.closed.append(alert.id)
        elif alert.cleared_at is None or alert.cleared_at > now:
            decision.cleared.append(alert.id)
        elif now - alert.cleared_at >= timedelta(seconds=close_after):
            decision.closed.append(alert.id)
    decision.raised.extend(each for each in by_key.values() if each.exceeds_limit)
    return decision

"""From the state of a job to the reasons why it does not run, each with a remedy.

A queued job that no worker claims gets a reason for each group of workers that could claim it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import datetime
from typing import Any

import msgspec

from rota.model import codec
from rota.model.explanation import ExplanationReason, SubjectKind
from rota.model.journal import entry_label
from rota.model.text import counted, in_one_unit
from rota.store.read.explain import (
    AwaitedLockRow,
    EligibleWorkers,
    JobSituationRow,
    QueuePosition,
    WaitingRow,
)

WORKER_COMMAND = "`rota worker MODULE:APP`"


class Situation(msgspec.Struct, frozen=True):
    """Facts used for the reasons, apart from the job itself."""

    now: datetime
    dead_after: float
    eligibility: dict[tuple[str, str], EligibleWorkers]
    positions: dict[int, QueuePosition]
    waits: dict[int, list[WaitingRow]]

    def eligibility_of(self, job: JobSituationRow) -> EligibleWorkers:
        return self.eligibility[job.queue, job.task]


class ReasonBuilder:
    """Builds the reasons of one job."""

    def __init__(self, job: JobSituationRow, situation: Situation, name: str) -> None:
        self.job = job
        self.situation = situation
        self.eligibility = situation.eligibility_of(job)
        self.name = name

    def __call__(
        self,
        *,
        message: str,
        about: tuple[SubjectKind, object] | None = None,
        error: bytes | None = None,
        **more: Any,
    ) -> ExplanationReason:
        kind, subject = about or ("job", self.job.job)
        if error is not None:
            more["detail"] = codec.decode_error(error).message or None
        more.setdefault("since", self.job.since)
        return ExplanationReason(
            message=message,
            kind=kind,
            subject=str(subject),
            job=self.job.job,
            **more,
        )


def no_worker_reason(builder: ReasonBuilder, message: str) -> ExplanationReason:
    return builder(
        code="no_worker",
        message=message,
        about=("queue", builder.job.queue),
        remedy=f"start one with {WORKER_COMMAND}",
        is_stuck=True,
    )


MAX_LAG_SECONDS = 5.0
"""Seconds of event loop lag from which a worker counts as blocked."""


def reasons_for(
    job: JobSituationRow, situation: Situation, *, asked_about: int
) -> list[ExplanationReason]:
    """Return why the job does not run. The job `asked_about` is called "it" instead of by its id."""
    builder = ReasonBuilder(
        job, situation, "it" if job.job == asked_about else f"job {job.job} ({job.task})"
    )
    match job.state:
        case "ended":
            return [
                builder(
                    code="ended",
                    message=f"{builder.name} has ended: it {_outcome_text(job.outcome)}",
                )
            ]
        case "quarantined":
            return [_quarantined(builder)]
        case "running":
            return _held(builder)
        case "sleeping":
            return _sleeping(builder)
        case "queued":
            return queued_reasons(builder)
    return []


# Quarantined


def _quarantined(builder: ReasonBuilder) -> ExplanationReason:
    job = builder.job
    changed = codec.decode_error(job.error).type == "rota.errors.ReplayMismatch"
    cause = (
        "its code has changed since the run began"
        if changed
        else "too many workers were lost with it"
    )
    before = "deploy code that matches its journal, then " if changed else ""
    return builder(
        code="quarantined",
        message=f"{builder.name} is in quarantine because {cause}; it is not retried automatically",
        remedy=f"{before}`rota release {job.job}` retries it, `rota cancel {job.job}` ends it",
        error=job.error,
        is_stuck=True,
    )


# Held by a worker


def _held(builder: ReasonBuilder) -> list[ExplanationReason]:
    job = builder.job
    holder = f"worker {job.worker}"
    if job.host is not None:
        holder += f" on {job.host}, process {job.pid}"
    about: tuple[SubjectKind, object] = ("worker", job.worker)
    found = []
    if job.cancel_requested is not None:
        found.append(
            builder(
                code="cancelling",
                message=f"{builder.name} was cancelled, and its code on {holder} has not stopped yet; "
                "the code has to check ctx.cancelled",
                about=about,
                since=job.cancel_requested,
            )
        )
    if job.worker_state not in ("active", "draining"):
        return [*found, _orphaned(builder, holder, about)]
    silent = job.silent_seconds or 0.0
    if job.claim_expires is not None and job.claim_expires <= builder.situation.now:
        found.append(
            builder(
                code="visibility_timeout",
                message=f"{holder} has held {builder.name} for longer than the task's"
                " `visibility_timeout` allows: any worker takes it back",
                about=about,
                since=job.claim_expires,
                **_needs_worker(builder),
            )
        )
    elif silent >= builder.situation.dead_after / 2:
        found.append(_silent(builder, holder, about, silent))
    else:
        found.append(_running(builder, holder, about))
    return found


def _orphaned(
    builder: ReasonBuilder, holder: str, about: tuple[SubjectKind, object]
) -> ExplanationReason:
    status = {"dead": "is dead", "stopped": "has stopped"}.get(
        builder.job.worker_state or "", "is no longer registered"
    )
    return builder(
        code="orphaned",
        message=f"{holder} {status} and still holds {builder.name}: a live worker takes it back "
        "with its next heartbeat",
        about=about,
        **_needs_worker(builder),
    )


def _silent(
    builder: ReasonBuilder, holder: str, about: tuple[SubjectKind, object], silent: float
) -> ExplanationReason:
    remaining = builder.situation.dead_after - silent
    when = f"in about {remaining:.0f} s" if remaining >= 1 else "any moment"
    needs = _needs_worker(builder)
    consequence = (
        "no other worker is running to take it back"
        if needs
        else f"{when} another worker declares it dead and returns the job to the queue"
    )
    return builder(
        code="silent",
        message=f"{holder} holds {builder.name} and has sent no heartbeat for "
        f"{in_one_unit(silent)}; {consequence}",
        about=about,
        **needs,
    )


def _needs_worker(builder: ReasonBuilder) -> dict[str, Any]:
    """Return the remedy, if no live worker but the one that holds the job could take it back."""
    is_registered = builder.job.worker_state in ("active", "draining")
    is_alive = (
        is_registered and (builder.job.silent_seconds or 0.0) < builder.situation.dead_after / 2
    )
    if builder.eligibility.alive - is_alive > 0:
        return {}
    return {
        "remedy": f"no other worker is running; start one with {WORKER_COMMAND}",
        "is_stuck": True,
    }


def _running(
    builder: ReasonBuilder, holder: str, about: tuple[SubjectKind, object]
) -> ExplanationReason:
    job = builder.job
    message = f"{builder.name} runs on {holder}"
    if (job.lag or 0) > MAX_LAG_SECONDS:
        message += f"; the event loop of the worker has been blocked for {job.lag:.0f} s"
    held_jobs, capacity = job.held_jobs or 0, job.capacity or 0
    if held_jobs > max(capacity, job.running or 0):
        message = (
            f"{holder} holds {builder.name} with {held_jobs - 1:,} more and runs {capacity:,} at a time: "
            "it may not have started"
        )
    if job.is_exclusive is True:
        message += "; alone, for workers were lost with it"
    if job.done is not None:
        message += f"; {_progress(job.done, job.total)}"
    return builder(code="running", message=message, about=about, detail=job.note)


def _progress(done: float, total: float | None) -> str:
    return f"{done:,g} of {total:,g} done" if total else f"{done:,g} done"


def contended_lock(lock: AwaitedLockRow, job: int) -> ExplanationReason:
    """Return an uncertain reason: the database does not record which job's code waits for a lock."""
    lock_name = f"permit {lock.permit} of {lock.name!r}" if lock.permit else f"lock {lock.name!r}"
    holder = (
        f"{lock.label} ({lock.host}, process {lock.pid})"
        if lock.label
        else f"{lock.host}, process {lock.pid}"
    )
    return ExplanationReason(
        code="lock",
        message=f"{lock_name} is awaited and held by {holder}: if the job's code acquires it, "
        "the job waits",
        kind="lock",
        subject=lock.name,
        job=job,
        since=lock.since,
        until=lock.expires,
        is_certain=False,
    )


# Sleeping


def _sleeping(builder: ReasonBuilder) -> list[ExplanationReason]:
    job, now = builder.job, builder.situation.now
    if job.wakes is not None and job.wakes <= now:
        return [_due(builder)]
    waits = builder.situation.waits.get(job.job, [])
    # Steps that a failed attempt left open are not the cause of the sleep.
    awaited = [each for each in waits if _is_awaited(each, job)]
    if awaited:
        return [_wait(builder, each) for each in awaited]
    if job.signals:
        return [_signal(builder, each, job.wakes) for each in job.signals]
    if job.attempt is not None and job.attempt > 1:
        error = codec.decode_error(job.error).type or "an error"
        return [
            builder(
                code="retry",
                message=f"attempt {job.attempt - 1} of {builder.name} failed with {error}; the "
                "next one waits",
                until=job.wakes,
                error=job.error,
            )
        ]
    return [builder(code="delay", message=f"{builder.name} was started for later", until=job.wakes)]


def _due(builder: ReasonBuilder) -> ExplanationReason:
    if builder.eligibility.wakers:
        message = f"the time of {builder.name} has come: a worker wakes it"
        return builder(code="due", message=message, until=builder.job.wakes)
    cause = "all workers are draining" if builder.eligibility.alive else "no worker is running"
    message = f"the time of {builder.name} has come, and {cause}: it is not woken"
    return no_worker_reason(builder, message)


def _is_awaited(wait: WaitingRow, job: JobSituationRow) -> bool:
    if wait.kind == "wait" and wait.name in (job.signals or ()):
        return True
    return wait.until is not None and wait.until == job.wakes


def _signal(builder: ReasonBuilder, name: str, until: datetime | None) -> ExplanationReason:
    no_timeout = "" if until else ", without a timeout"
    return builder(
        code="signal",
        message=f"{builder.name} waits for signal {name!r}{no_timeout}",
        about=("signal", name),
        until=until,
        remedy=f"`rota signal {builder.job.run} {shlex.quote(name)}` sends it",
        is_stuck=builder.job.wakes is None,
    )


def _wait(builder: ReasonBuilder, wait: WaitingRow) -> ExplanationReason:
    if wait.kind == "wait":
        return _signal(builder, wait.name, wait.until)
    if wait.kind == "sleep":
        return builder(
            code="sleep", message=f"{builder.name} sleeps in ctx.sleep", until=wait.until
        )
    error = codec.decode_error(wait.error).type or "an error"
    times = "once" if wait.tries == 1 else f"{wait.tries} times"
    return builder(
        code="step_retry",
        message=f"{entry_label(wait.kind, wait.name, wait.number)} of {builder.name} failed "
        f"{times}, last with "
        f"{error}; its next try waits",
        until=wait.until,
        error=wait.error,
    )


def _outcome_text(outcome: str) -> str:
    return {"succeeded": "succeeded", "failed": "failed"}.get(outcome, f"was {outcome}")


MAX_COUNTED_JOBS = 1000
"""Jobs that are counted ahead of a job in its queue."""


def queued_reasons(builder: ReasonBuilder) -> list[ExplanationReason]:
    job, eligibility = builder.job, builder.eligibility
    if job.paused_since is not None:
        return [_paused(builder)]
    if not eligibility.workers:
        return [no_worker_reason(builder, f"{builder.name} is queued, and no worker is running")]
    if not eligibility.serving:
        queues = ", ".join(sorted(eligibility.queues)[:5]) or "none"
        return [
            builder(
                code="queue_unserved",
                message=f"{builder.name} is queued, and no worker serves queue {job.queue!r}; "
                f"served: {queues}",
                about=("queue", job.queue),
                remedy=f"`rota worker MODULE:APP -q {shlex.quote(job.queue)}`",
                is_stuck=True,
            )
        ]
    if not eligibility.conditions:
        return [_unknown_task(builder)]
    if not eligibility.eligible:
        return [
            builder(
                code="draining",
                message=f"{builder.name} is queued, and all workers that could claim it are draining: "
                f"{_worker_list(eligibility)}",
                about=("task", job.task),
                remedy=f"start another with {WORKER_COMMAND}",
                is_stuck=True,
            )
        ]
    if "free" not in eligibility.conditions:
        return [_busy(builder)]
    if job.suspicion is not None:
        return [_suspect(builder)]
    return [_queue_position(builder)]


def _paused(builder: ReasonBuilder) -> ExplanationReason:
    job = builder.job
    detail = ": ".join(each for each in (job.paused_by, job.pause_reason) if each)
    return builder(
        code="paused",
        message=f"{builder.name} is queued, and queue {job.queue!r} is paused: no worker claims its jobs",
        about=("queue", job.queue),
        since=job.paused_since,
        remedy=f"`rota queues resume {shlex.quote(job.queue)}`",
        detail=detail or None,
        is_stuck=True,
    )


def _unknown_task(builder: ReasonBuilder) -> ExplanationReason:
    job, eligibility = builder.job, builder.eligibility
    versions = ", ".join(each for each in eligibility.versions if each)
    running = f", which run version {versions}" if versions else ""
    elsewhere = (
        f"; {counted(eligibility.knowing, 'worker knows', 'workers know')} it, for other queues"
        if eligibility.knowing
        else ""
    )
    return builder(
        code="task_unknown",
        message=f"{builder.name} is queued, and of the "
        f"{counted(eligibility.serving, 'worker')} that serve queue "
        f"{job.queue!r}{running}, none knows task {job.task!r}{elsewhere}",
        about=("task", job.task),
        remedy=f"`rota worker MODULE:APP -q {shlex.quote(job.queue)}` with an app that has it; "
        "`rota check-deploy MODULE:APP` lists the tasks an app lacks",
        is_stuck=True,
    )


def _busy(builder: ReasonBuilder) -> ExplanationReason:
    """Return why every eligible worker cannot take the job."""
    eligibility = builder.eligibility
    kinds = Counter(each for each in eligibility.conditions if each != "draining")
    descriptions = {
        "full": f"full, with {counted(eligibility.running, 'job')} running",
        "silent": "silent, without a recent heartbeat",
        "late": "blocked: a task blocks the event loop",
        "lone": "reserved for a job that has to run alone",
    }
    summary = "; ".join(
        f"{number:,} {descriptions[kind]}" for kind, number in sorted(kinds.items())
    )
    code = "full" if "full" in kinds else "late" if "late" in kinds else next(iter(kinds))
    remedies = {
        "full": f"start more with {WORKER_COMMAND}, or with a larger -c",
        "late": 'isolation="process" or a plain `def` keeps such code off the event loop',
        "silent": f"check that worker, or start another with {WORKER_COMMAND}",
    }
    return builder(
        code="suspect" if code == "lone" else code,
        message=f"{builder.name} is queued; of the "
        f"{counted(eligibility.eligible, 'worker')} that would take "
        f"it: {summary} ({_worker_list(eligibility)})",
        about=("queue", builder.job.queue),
        remedy=remedies.get(code),
        is_stuck=set(kinds) == {"silent"},
    )


def _suspect(builder: ReasonBuilder) -> ExplanationReason:
    mild = builder.job.suspicion == "mild"
    handling = (
        "so it is claimed by itself"
        if mild
        else "more than once, so it is claimed by itself and runs alone"
    )
    return builder(
        code="suspect",
        message=f"{builder.name} is queued and was lost with a worker, {handling}: "
        f"{counted(builder.eligibility.eligible, 'worker')} would take it",
        about=("queue", builder.job.queue),
    )


def _queue_position(builder: ReasonBuilder) -> ExplanationReason:
    position = builder.situation.positions.get(builder.job.job)
    about: tuple[SubjectKind, object] = ("queue", builder.job.queue)
    eligible = counted(builder.eligibility.eligible, "worker")
    if position is None:
        return builder(
            code="behind",
            message=f"{builder.name} is queued, and {eligible} would take it",
            about=about,
        )
    if position.seq is None:
        ahead = "other jobs"
    elif position.ahead >= MAX_COUNTED_JOBS:
        ahead = f"{MAX_COUNTED_JOBS:,} other jobs or more"
    elif position.ahead:
        ahead = counted(position.ahead, "other job")
    else:
        return builder(
            code="next",
            message=f"{builder.name} is the next of its queue; {eligible} would take it",
            about=about,
        )
    return builder(
        code="behind",
        message=f"{builder.name} is queued behind {ahead} of queue {builder.job.queue!r}; "
        f"{eligible} would take it",
        about=about,
    )


def _worker_list(eligibility: EligibleWorkers) -> str:
    more = len(eligibility.conditions) - len(eligibility.worker_ids)
    named = ", ".join(str(each) for each in eligibility.worker_ids) + (
        f" and {more:,} more" if more else ""
    )
    return f"worker {named}" if len(eligibility.conditions) == 1 else f"workers {named}"

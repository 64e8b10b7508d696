"""From where a job is to why it does not run: one reason, or a few, each with what to do."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Any

from rota.engine.takers import queued_reasons
from rota.engine.telling import WORKER_COMMAND, ReasonBuilder, Situation, no_worker_reason
from rota.model import codec
from rota.model.checkup import format_duration
from rota.model.replay import entry_label
from rota.model.why import ExplanationReason, SubjectKind
from rota.store.why import AwaitedLockRow, JobSituationRow, WaitingRow

MAX_LAG_SECONDS = 5.0
"""Seconds that a worker's event loop may be late before it counts for something."""


def reasons_for(
    job: JobSituationRow, situation: Situation, *, asked_about: int
) -> list[ExplanationReason]:
    """Why the job there does not run; `of`: what was asked about, which needs no name."""
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
        case "asleep":
            return _sleeping(builder)
        case "ready":
            return queued_reasons(builder)
    return []


# In quarantine


def _quarantined(builder: ReasonBuilder) -> ExplanationReason:
    job = builder.job
    changed = codec.decode_error(job.error).type == "rota.errors.ReplayMismatch"
    cause = "its code has changed under way" if changed else "too many workers were lost with it"
    before = "deploy code that fits what it came to, then " if changed else ""
    return builder(
        code="quarantined",
        message=f"{builder.name} is in quarantine, for {cause}: nobody tries it again by himself",
        remedy=f"{before}`rota release {job.job}` tries it again, `rota cancel {job.job}` ends it",
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
                message=f"{builder.name} is to stop, and its code on {holder} has not yet: it is told with "
                "every beat, and sees ctx.cancelled",
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
                code="hold_over",
                message=f"{holder} has held {builder.name} for longer than the task's `hold` allows: any "
                "worker takes it back",
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
    status = {"dead": "is dead", "stopped": "has left"}.get(
        builder.job.worker_state or "", "is not known any more"
    )
    return builder(
        code="orphaned",
        message=f"{holder} {status} and still holds {builder.name}: a worker that is there takes "
        "it back with "
        "its next beat",
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
        "no other is there to take it back"
        if needs
        else f"{when} the others take the worker to be dead, and the job goes back"
    )
    return builder(
        code="silent",
        message=f"{holder} holds {builder.name} and has not been heard of for "
        f"{format_duration(silent)}; {consequence}",
        about=about,
        **needs,
    )


def _needs_worker(builder: ReasonBuilder) -> dict[str, Any]:
    """What only a worker does that is heard of, where there is none but the one that holds it."""
    is_registered = builder.job.worker_state in ("active", "draining")
    is_alive = (
        is_registered and (builder.job.silent_seconds or 0.0) < builder.situation.dead_after / 2
    )
    if builder.eligibility.alive - is_alive > 0:
        return {}
    return {
        "remedy": f"no other worker is there; start one with {WORKER_COMMAND}",
        "is_stuck": True,
    }


def _running(
    builder: ReasonBuilder, holder: str, about: tuple[SubjectKind, object]
) -> ExplanationReason:
    job = builder.job
    message = f"{builder.name} runs on {holder}"
    if (job.lag or 0) > MAX_LAG_SECONDS:
        message += f", whose event loop has been blocked for {job.lag:.0f} s"
    held_jobs, capacity = job.held_jobs or 0, job.capacity or 0
    if held_jobs > max(capacity, job.running or 0):
        message = (
            f"{holder} holds {builder.name} with {held_jobs - 1:,} others and runs {capacity:,} at a time: "
            "it may not have begun"
        )
    if job.is_exclusive is True:
        message += "; alone, for workers were lost with it"
    if job.done is not None:
        message += f"; {_progress(job.done, job.total)}"
    return builder(code="running", message=message, about=about, detail=job.note)


def _progress(done: float, total: float | None) -> str:
    return f"{done:,g} of {total:,g} done" if total else f"{done:,g} done"


def contended_lock(lock: AwaitedLockRow, job: int) -> ExplanationReason:
    """Somebody waits for this lock; whether it is the code of that job, nobody writes down."""
    lock_name = f"permit {lock.permit} of {lock.name!r}" if lock.permit else f"lock {lock.name!r}"
    holder = (
        f"{lock.label} ({lock.host}, process {lock.pid})"
        if lock.label
        else f"{lock.host}, process {lock.pid}"
    )
    return ExplanationReason(
        code="lock",
        message=f"somebody waits for {lock_name}, which {holder} holds: if its code asks for "
        "that, it waits",
        kind="lock",
        subject=lock.name,
        job=job,
        since=lock.since,
        until=lock.expires,
        is_certain=False,
    )


# Asleep


def _sleeping(builder: ReasonBuilder) -> list[ExplanationReason]:
    job, now = builder.job, builder.situation.now
    is_due = job.wakes is not None and job.wakes <= now
    if is_due:
        if builder.eligibility.wakers:
            return [
                builder(
                    code="due",
                    message=f"the time of {builder.name} has come: a worker wakes it",
                    until=job.wakes,
                )
            ]
        cause = (
            "all workers that are there are about to leave"
            if builder.eligibility.alive
            else "no worker is there"
        )
        return [
            no_worker_reason(
                builder, f"the time of {builder.name} has come, and {cause}: nobody wakes it"
            )
        ]
    waits = builder.situation.waits.get(job.job, [])
    # Steps that a failed attempt left open are not what it sleeps for.
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


def _is_awaited(wait: WaitingRow, job: JobSituationRow) -> bool:
    if wait.kind == "wait" and wait.name in (job.signals or ()):
        return True
    return wait.until is not None and wait.until == job.wakes


def _signal(builder: ReasonBuilder, name: str, until: datetime | None) -> ExplanationReason:
    no_timeout = "" if until else ", however long that takes"
    return builder(
        code="signal",
        message=f"{builder.name} waits for signal {name!r}{no_timeout}",
        about=("signal", name),
        until=until,
        remedy=f"`rota signal {builder.job.run} {shlex.quote(name)}` tells it",
        is_stuck=builder.job.wakes is None,
    )


def _wait(builder: ReasonBuilder, wait: WaitingRow) -> ExplanationReason:
    if wait.kind == "wait":
        return _signal(builder, wait.name, wait.until)
    if wait.kind == "sleep":
        return builder(
            code="sleep", message=f"{builder.name} sleeps, as its code says", until=wait.until
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

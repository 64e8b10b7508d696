"""Why a job that is ready is not taken: who would, and what keeps each of them."""

from __future__ import annotations

import shlex
from collections import Counter

from rota.engine.telling import WORKER_COMMAND, ReasonBuilder, format_count, no_worker_reason
from rota.model.why import ExplanationReason, SubjectKind
from rota.store.why import EligibleWorkers

MAX_COUNTED_JOBS = 1000
"""Jobs before one in its queue that are counted."""


def queued_reasons(builder: ReasonBuilder) -> list[ExplanationReason]:
    job, eligibility = builder.job, builder.eligibility
    if job.paused_since is not None:
        return [_paused(builder)]
    if not eligibility.workers:
        return [no_worker_reason(builder, f"{builder.name} is ready, and no worker is there")]
    if not eligibility.serving:
        queues = ", ".join(sorted(eligibility.queues)[:5]) or "none"
        return [
            builder(
                code="queue_unserved",
                message=f"{builder.name} is ready, and no worker serves queue {job.queue!r}; "
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
                message=f"{builder.name} is ready, and all that would take it are about to leave: "
                f"{_worker_list(eligibility)}",
                about=("task", job.task),
                remedy=f"start another with {WORKER_COMMAND}",
                is_stuck=True,
            )
        ]
    if "free" not in eligibility.conditions:
        return [_busy(builder)]
    if job.lost is not None:
        return [_suspect(builder)]
    return [_queue_position(builder)]


def _paused(builder: ReasonBuilder) -> ExplanationReason:
    job = builder.job
    detail = ": ".join(each for each in (job.paused_by, job.pause_reason) if each)
    return builder(
        code="paused",
        message=f"{builder.name} is ready, and queue {job.queue!r} is paused: nobody takes from it",
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
        f"; {format_count(eligibility.knowing, 'worker knows', 'workers know')} it, for other queues"
        if eligibility.knowing
        else ""
    )
    return builder(
        code="task_unknown",
        message=f"{builder.name} is ready, and of the "
        f"{format_count(eligibility.serving, 'worker', 'workers')} that serve queue "
        f"{job.queue!r}{running}, none knows task {job.task!r}{elsewhere}",
        about=("task", job.task),
        remedy=f"`rota worker MODULE:APP -q {shlex.quote(job.queue)}` with an app that has it; "
        "`rota check-deploy MODULE:APP` says what an app does not have",
        is_stuck=True,
    )


def _busy(builder: ReasonBuilder) -> ExplanationReason:
    """Every worker that would take it is kept from it."""
    eligibility = builder.eligibility
    kinds = Counter(each for each in eligibility.conditions if each != "draining")
    descriptions = {
        "full": f"full, with {format_count(eligibility.running, 'job', 'jobs')} running",
        "silent": "silent, not heard of for a while",
        "late": "blocked: code that waits for nobody keeps its event loop",
        "lone": "kept for a job that has to run alone",
    }
    summary = "; ".join(
        f"{number:,} {descriptions[kind]}" for kind, number in sorted(kinds.items())
    )
    code = "full" if "full" in kinds else "late" if "late" in kinds else next(iter(kinds))
    remedies = {
        "full": f"start more with {WORKER_COMMAND}, or with a larger -c",
        "late": 'isolation="process" or a plain `def` keeps such code off the event loop',
        "silent": f"look what has become of it, or start another with {WORKER_COMMAND}",
    }
    return builder(
        code="suspect" if code == "lone" else code,
        message=f"{builder.name} is ready; of the "
        f"{format_count(eligibility.eligible, 'worker', 'workers')} that would take "
        f"it: {summary} ({_worker_list(eligibility)})",
        about=("queue", builder.job.queue),
        remedy=remedies.get(code),
        is_stuck=set(kinds) == {"silent"},
    )


def _suspect(builder: ReasonBuilder) -> ExplanationReason:
    mild = builder.job.lost in (-1, -3)
    handling = (
        "so it is claimed by itself"
        if mild
        else "more than once, so it is claimed by itself and runs alone"
    )
    return builder(
        code="suspect",
        message=f"{builder.name} is ready and was lost with a worker, {handling}: "
        f"{format_count(builder.eligibility.eligible, 'worker', 'workers')} would take it",
        about=("queue", builder.job.queue),
    )


def _queue_position(builder: ReasonBuilder) -> ExplanationReason:
    position = builder.situation.positions.get(builder.job.job)
    about: tuple[SubjectKind, object] = ("queue", builder.job.queue)
    eligible = format_count(builder.eligibility.eligible, "worker", "workers")
    if position is None:
        return builder(
            code="behind",
            message=f"{builder.name} is ready, and {eligible} would take it",
            about=about,
        )
    if position.seq is None:
        ahead = "others"
    elif position.ahead >= MAX_COUNTED_JOBS:
        ahead = f"{MAX_COUNTED_JOBS:,} others or more"
    elif position.ahead:
        ahead = format_count(position.ahead, "other", "others")
    else:
        return builder(
            code="next",
            message=f"{builder.name} is the next of its queue; {eligible} would take it",
            about=about,
        )
    return builder(
        code="behind",
        message=f"{builder.name} is ready behind {ahead} of queue {builder.job.queue!r}; "
        f"{eligible} would take it",
        about=about,
    )


def _worker_list(eligibility: EligibleWorkers) -> str:
    more = len(eligibility.conditions) - len(eligibility.worker_ids)
    named = ", ".join(str(each) for each in eligibility.worker_ids) + (
        f" and {more:,} more" if more else ""
    )
    return f"worker {named}" if len(eligibility.conditions) == 1 else f"workers {named}"

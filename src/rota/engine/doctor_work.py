"""The work: who is there for it, and what nobody comes for."""

from __future__ import annotations

import shlex

from rota.engine.charts import CheckContext
from rota.model.checkup import CheckResult, format_duration
from rota.store import doctor, queues, views

OVERDUE_SECONDS = 30.0
"""Seconds after its time at which a sleeping job should have been woken, by any worker."""


async def check_workers(context: CheckContext) -> list[CheckResult]:
    dead_after = context.database.settings.dead_after
    counts = await context.fetch_one(doctor.worker_counts(dead_after))
    if counts.silent_workers:
        message = (
            f"{counts.silent_workers} of {counts.workers} workers have not been heard of "
            f"for {format_duration(dead_after)}"
        )
        message += (
            ""
            if counts.silent_workers < counts.workers
            else ", and no other is there to take them to be dead"
        )
        fix = "rota worker MODULE:APP"
        return [CheckResult("workers", "problem", message, counts.silent_workers, "workers", fix)]
    if not counts.workers:
        message = "no worker is there"
        return [CheckResult("workers", "notice", message, 0, "workers", "rota worker MODULE:APP")]
    versions = [each for each in counts.rota_versions if each]
    if len(versions) > 1:
        message = (
            f"{counts.workers} workers are there, with several versions of Rota: "
            f"{', '.join(versions)}"
        )
        fix = "finish the deploy: rota workers lists them"
        return [CheckResult("workers", "notice", message, len(versions), "versions", fix)]
    noun = "worker is" if counts.workers == 1 else "workers are"
    return [
        CheckResult("workers", "ok", f"{counts.workers:,} {noun} there", counts.workers, "workers")
    ]


async def check_unclaimable(context: CheckContext) -> list[CheckResult]:
    results = []
    for each in await context.fetch(doctor.unclaimable_jobs()):
        more = " or more" if each.jobs >= doctor.MAX_JOBS_PER_LANE else ""
        jobs = "1 job" if each.jobs == 1 else f"{each.jobs:,}{more} jobs"
        reason = (
            f"none of the {each.serving_workers} workers that serve it knows the task"
            if each.serving_workers
            else "no worker serves it"
        )
        results.append(
            CheckResult(
                "unclaimable",
                "problem",
                f"{jobs} of task {each.task!r} in queue {each.queue!r}, such as {each.first_job}: {reason}",
                each.jobs,
                "jobs",
                f"rota worker MODULE:APP -q {shlex.quote(each.queue)}",
            )
        )
    return results or [
        CheckResult("unclaimable", "ok", "all that is ready has somebody to take it", 0, "jobs")
    ]


async def check_paused(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch(queues.list_paused())
    if not found:
        return [CheckResult("paused", "ok", "no queue is paused", 0, "queues")]
    [now] = await context.fetch(views.database_time())
    results = []
    for each in found:
        seconds = max((now - each.since).total_seconds(), 0.0)
        message = (
            f"queue {each.queue!r} has been paused for {format_duration(seconds)}: nobody "
            "takes from it"
        )
        fix = f"rota queues resume {shlex.quote(each.queue)}"
        results.append(CheckResult("paused", "notice", message, round(seconds, 1), "s", fix))
    return results


async def check_overdue(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.overdue_jobs(OVERDUE_SECONDS))
    if not found.jobs:
        return [CheckResult("overdue", "ok", "no sleeping job is late", 0, "s")]
    more = " or more" if found.jobs >= 1000 else ""
    jobs = "1 job" if found.jobs == 1 else f"{found.jobs:,}{more} jobs"
    seconds = found.late_seconds or 0.0
    message = f"nobody has woken {jobs} whose time came up to {format_duration(seconds)} ago"
    return [
        CheckResult("overdue", "problem", message, round(seconds, 1), "s", "rota worker MODULE:APP")
    ]


async def check_orphans(context: CheckContext) -> list[CheckResult]:
    # Twice as long as it takes when somebody is there to do it.
    found = await context.fetch_one(
        doctor.orphaned_claims(2 * context.database.settings.dead_after)
    )
    if not found.jobs:
        return [CheckResult("orphans", "ok", "nobody who is gone holds a job", 0, "jobs")]
    jobs = "1 job is" if found.jobs == 1 else f"{found.jobs:,} jobs are"
    message = (
        f"{jobs} held by workers that are gone, such as {found.first_worker}, and nobody "
        "takes them back"
    )
    return [
        CheckResult("orphans", "problem", message, found.jobs, "jobs", "rota worker MODULE:APP")
    ]


async def check_quarantine(context: CheckContext) -> list[CheckResult]:
    counts = await context.fetch_one(doctor.worker_counts(context.database.settings.dead_after))
    if not counts.quarantined:
        return [CheckResult("quarantine", "ok", "no job is in quarantine", 0, "jobs")]
    jobs = "1 job is" if counts.quarantined == 1 else f"{counts.quarantined:,} jobs are"
    message = f"{jobs} in quarantine: nobody tries them again by himself"
    return [
        CheckResult("quarantine", "notice", message, counts.quarantined, "jobs", "rota quarantine")
    ]

"""The work: who is there for it, and what nobody comes for."""

from __future__ import annotations

import shlex

from rota.engine.charts import Chart
from rota.model.checkup import Checked, duration
from rota.store import doctor, queues, views

LATE = 30.0
"""Seconds after its time at which a sleeping job should have been woken, by any worker."""


async def workers(chart: Chart) -> list[Checked]:
    dead_after = chart.database.settings.dead_after
    crew = await chart.one(doctor.crew(dead_after))
    if crew.silent:
        words = f"{crew.silent} of {crew.there} workers have not been heard of for {duration(dead_after)}"
        words += (
            "" if crew.silent < crew.there else ", and no other is there to take them to be dead"
        )
        fix = "rota worker MODULE:APP"
        return [Checked("workers", "problem", words, crew.silent, "workers", fix)]
    if not crew.there:
        words = "no worker is there"
        return [Checked("workers", "notice", words, 0, "workers", "rota worker MODULE:APP")]
    engines = [each for each in crew.engines if each]
    if len(engines) > 1:
        words = (
            f"{crew.there} workers are there, with several versions of Rota: {', '.join(engines)}"
        )
        fix = "finish the deploy: rota workers lists them"
        return [Checked("workers", "notice", words, len(engines), "versions", fix)]
    noun = "worker is" if crew.there == 1 else "workers are"
    return [Checked("workers", "ok", f"{crew.there:,} {noun} there", crew.there, "workers")]


async def unclaimable(chart: Chart) -> list[Checked]:
    answers = []
    for each in await chart.ask(doctor.unclaimable()):
        more = " or more" if each.jobs >= doctor.FIRST else ""
        jobs = "1 job" if each.jobs == 1 else f"{each.jobs:,}{more} jobs"
        why = (
            f"none of the {each.serving} workers that serve it knows the task"
            if each.serving
            else "no worker serves it"
        )
        answers.append(
            Checked(
                "unclaimable",
                "problem",
                f"{jobs} of task {each.task!r} in queue {each.queue!r}, such as {each.job}: {why}",
                each.jobs,
                "jobs",
                f"rota worker MODULE:APP -q {shlex.quote(each.queue)}",
            )
        )
    return answers or [
        Checked("unclaimable", "ok", "all that is ready has somebody to take it", 0, "jobs")
    ]


async def paused(chart: Chart) -> list[Checked]:
    found = await chart.ask(queues.paused())
    if not found:
        return [Checked("paused", "ok", "no queue is paused", 0, "queues")]
    [now] = await chart.ask(views.clock())
    answers = []
    for each in found:
        seconds = max((now - each.since).total_seconds(), 0.0)
        words = (
            f"queue {each.queue!r} has been paused for {duration(seconds)}: nobody takes from it"
        )
        fix = f"rota queues resume {shlex.quote(each.queue)}"
        answers.append(Checked("paused", "notice", words, round(seconds, 1), "s", fix))
    return answers


async def overdue(chart: Chart) -> list[Checked]:
    found = await chart.one(doctor.overdue(LATE))
    if not found.jobs:
        return [Checked("overdue", "ok", "no sleeping job is late", 0, "s")]
    more = " or more" if found.jobs >= 1000 else ""
    jobs = "1 job" if found.jobs == 1 else f"{found.jobs:,}{more} jobs"
    seconds = found.seconds or 0.0
    words = f"nobody has woken {jobs} whose time came up to {duration(seconds)} ago"
    return [Checked("overdue", "problem", words, round(seconds, 1), "s", "rota worker MODULE:APP")]


async def orphans(chart: Chart) -> list[Checked]:
    # Twice as long as it takes when somebody is there to do it.
    found = await chart.one(doctor.orphans(2 * chart.database.settings.dead_after))
    if not found.jobs:
        return [Checked("orphans", "ok", "nobody who is gone holds a job", 0, "jobs")]
    jobs = "1 job is" if found.jobs == 1 else f"{found.jobs:,} jobs are"
    words = (
        f"{jobs} held by workers that are gone, such as {found.worker}, and nobody takes them back"
    )
    return [Checked("orphans", "problem", words, found.jobs, "jobs", "rota worker MODULE:APP")]


async def quarantine(chart: Chart) -> list[Checked]:
    crew = await chart.one(doctor.crew(chart.database.settings.dead_after))
    if not crew.quarantined:
        return [Checked("quarantine", "ok", "no job is in quarantine", 0, "jobs")]
    jobs = "1 job is" if crew.quarantined == 1 else f"{crew.quarantined:,} jobs are"
    words = f"{jobs} in quarantine: nobody tries them again by himself"
    return [Checked("quarantine", "notice", words, crew.quarantined, "jobs", "rota quarantine")]

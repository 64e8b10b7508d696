"""`rota check-deploy`: which runs in flight would not go on with this code. For CI, before a deploy."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import msgspec
import rich_click as click

from rota.cli import paint
from rota.cli.endings import FAILED, leave, tell
from rota.cli.target import Target, with_database

if TYPE_CHECKING:
    from rota import Rota
    from rota.engine.glance import Trouble
    from rota.engine.hand import Hand
    from rota.model.task import Definition
    from rota.store.inflight import JobLine, TaskLine
    from rota.store.jobs import Claimed

PAGE = 100
"""Jobs whose histories are read together."""

SAID = {
    "task": "no such task",
    "arguments": "arguments do not fit",
    "replay": "history does not fit",
    "error": "fails on the way",
}


class Found(msgspec.Struct, frozen=True):
    job: int
    run: int
    state: str


class Strand(msgspec.Struct):
    """Jobs of one task that would not go on, for one reason."""

    task: str
    problem: str
    reason: str
    jobs: int = 0
    """Without those in quarantine, which nobody tries anyway."""
    quarantined: int = 0
    found: list[Found] = msgspec.field(default_factory=list)
    """Of a task that is gone, one of them."""

    def add(self, job: JobLine) -> None:
        self.found.append(Found(job.job, job.run or job.job, job.state))
        if job.state == "quarantined":
            self.quarantined += 1
        else:
            self.jobs += 1


class Looked(msgspec.Struct):
    """What was looked at, of one task that is there."""

    task: str
    jobs: int
    checked: int = 0
    replayed: int = 0
    elsewhere: dict[str, int] = msgspec.field(default_factory=dict)
    """Jobs in queues that no task of the app names."""


class Report(msgspec.Struct):
    app: str
    stranded: int = 0
    strands: list[Strand] = msgspec.field(default_factory=list)
    tasks: list[Looked] = msgspec.field(default_factory=list)


@click.command("check-deploy")
@with_database
@click.argument("name", metavar="MODULE:APP", required=False)
@click.option(
    "--most",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    metavar="N",
    show_default=True,
    help="Look at so many jobs of each task, at most: those under way first, then the oldest.",
)
@click.option("--newest", is_flag=True, help="The newest before the oldest.")
@click.option(
    "--no-replay", is_flag=True, help="Run none of the app's code: only names and arguments count."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
def check_deploy(
    target: Target, name: str | None, most: int, newest: bool, no_replay: bool, as_json: bool
) -> None:
    """Would the runs in flight go on with the code of MODULE:APP? Exit code 1 if some would strand.

    Run it with the new code, on the database the old code works in, before you deploy. It finds jobs of
    tasks that are gone, arguments that no longer fit, and histories that no longer replay.

    It writes nothing, runs no step and starts nothing. But the code between steps is run, for every run
    that has come to some, up to where it had come: --no-replay leaves that out.
    """
    target = target.over(name, None, None)
    if target.app is None:
        raise click.UsageError("say which app: rota check-deploy MODULE:APP, or set ROTA_APP")
    report = Report(target.app)

    async def checking(app: Rota) -> Check:
        check = Check(app, report, most, newest=newest, replays=not no_replay)
        await check.run()
        return check

    check = target.ask(checking)
    if as_json:
        paint.say_json(report)
    else:
        _print(report, newest=newest)
    if not report.stranded:
        return
    if not as_json:
        paint.hint(
            "ctx.version(…) keeps the old way for old runs; or let the old code finish them first, or "
            "cancel them. `rota show JOB` says how far one has come"
        )
    tell(f"{_jobs(report.stranded)} would strand with {report.app}")
    if check.left_behind:
        # Python would wait for that thread at its end, for ever.
        sys.stdout.flush()
        os._exit(FAILED)
    leave(FAILED)


class Check:
    """Looks at what is in flight, task by task."""

    def __init__(
        self, app: Rota, report: Report, most: int, *, newest: bool, replays: bool
    ) -> None:
        self._app = app
        self._report = report
        self._most = most
        self._newest = newest
        self._replays = replays
        self._limit = app.settings.payload_limit
        self.left_behind = False
        """A thread runs on, whose code did not come to where it was."""
        self._queues = {task.policy.queue for task in app.registry.tasks.values()}

    async def run(self) -> None:
        from rota.engine.clock import Clock
        from rota.store import inflight, views

        report = self._report
        self._looking = inflight.Looking((await self._app.open()).database)
        [now] = await self._looking.insist(views.clock())
        self._clock = Clock(now)
        with _put_aside(self._app):
            for line in await self._looking.insist(inflight.tasks()):
                task = self._app.registry.get(line.task)
                strands = self._gone(line) if task is None else self._of(task, line)
                report.strands += await strands
        report.strands.sort(key=lambda each: (-each.jobs, each.task, each.reason))
        report.stranded = sum(each.jobs for each in report.strands)

    async def _gone(self, line: TaskLine) -> list[Strand]:
        from rota.store import inflight

        oldest = await self._looking.insist(inflight.jobs(line.task, 1))
        near = difflib.get_close_matches(line.task, self._app.registry.tasks, n=1)
        reason = (
            f"{self._report.app} has {repr(near[0]) + ', but ' if near else ''}no {line.task!r}"
        )
        strand = Strand(line.task, "task", reason)
        for job in oldest:
            strand.add(job)
        strand.jobs, strand.quarantined = line.jobs - line.quarantined, line.quarantined
        return [strand] if oldest else []

    async def _of(self, task: Definition, line: TaskLine) -> list[Strand]:
        from rota.store import inflight

        looked = Looked(task.name, line.jobs)
        self._report.tasks.append(looked)
        strands: dict[Trouble, Strand] = {}
        query = inflight.jobs(task.name, self._most, newest=self._newest)
        jobs = await self._looking.insist(query)
        for at in range(0, len(jobs), PAGE):
            async for job, trouble in self._troubles(task, jobs[at : at + PAGE], looked):
                fresh = Strand(task.name, trouble.problem, trouble.reason)
                strands.setdefault(trouble, fresh).add(job)
        return list(strands.values())

    async def _troubles(
        self, task: Definition, jobs: list[JobLine], looked: Looked
    ) -> AsyncIterator[tuple[JobLine, Trouble]]:
        from rota.engine.glance import glance, misfit, taken
        from rota.engine.inputs import fill, recall
        from rota.store import flows

        claimed = {job.job: _claimed(job, task) for job in jobs}
        begun = [claimed[job.job] for job in jobs if job.begun]
        hand = cast("Hand", self._looking)  # it sends as one does, and writes nothing
        await fill(begun, {task.name: task}, hand)
        await recall(begun if self._replays else [], hand, self._clock)
        wanted = {id for job in jobs if not job.begun for id in taken(job.inputs).values()}
        results = dict(await self._looking.insist(flows.inputs(sorted(wanted)))) if wanted else {}
        for job in jobs:
            looked.checked += 1
            if job.queue not in self._queues:
                looked.elsewhere[job.queue] = looked.elsewhere.get(job.queue, 0) + 1
            own = claimed[job.job]
            trouble = misfit(task, own.args, None if job.begun else job.inputs, results)
            if trouble is None and job.begun and self._replays:
                looked.replayed += 1
                trouble = await glance(task, own, self._clock, self._looking, self._limit)
            if trouble is not None:
                self.left_behind |= trouble.given_up and not task.is_async
                yield job, trouble


@contextmanager
def _put_aside(app: Rota) -> Iterator[None]:
    """Code that is looked at starts nothing and signals nobody: where it asks for the database, the look at
    it is over."""
    from rota.engine.glance import go_no_further

    app.open = go_no_further  # type: ignore[method-assign]
    try:
        yield
    finally:
        del app.open


def _claimed(job: JobLine, task: Definition) -> Claimed:
    from rota.store.jobs import Claimed

    return Claimed(
        claim=0,
        job=job.job,
        attempt=job.attempt,
        lost=0,
        place=0,
        seq=0,
        task=task.name,
        queue=job.queue,
        args=job.args,
        options=job.options,
        expired=None,
        run=job.run,
        inputs=job.inputs,
        checkpoint=job.checkpoint,
        begun=job.begun,
    )


# Telling


def _print(report: Report, *, newest: bool) -> None:
    if report.strands:
        _print_strands(report.strands)
        click.echo()
    checked = sum(each.checked for each in report.tasks)
    replayed = sum(each.replayed for each in report.tasks)
    if not checked and not report.strands:
        paint.say("nothing is in flight")
        return
    again = f", {paint.number(replayed)} of them replayed" if replayed else ""
    fine = "" if report.strands else f": all go on with {report.app}"
    paint.say(f"looked at {_jobs(checked)} of {_tasks(len(report.tasks))}{again}{fine}", "dim")
    for each in report.tasks:
        if each.checked < each.jobs:
            which = "newest" if newest else "oldest"
            paint.say(
                f"of the {_jobs(each.jobs)} of {each.task} only {paint.number(each.checked)} were looked "
                f"at, those under way and the {which}; --most says how many",
                "yellow",
            )
        for queue, count in each.elsewhere.items():
            paint.say(
                f"{_jobs(count)} of {each.task}: in queue {queue!r}, which is not the queue of any task of "
                f"{report.app}; some worker has to serve it with -q {queue}",
                "yellow",
            )
    aside = sum(each.quarantined for each in report.strands)
    if aside:
        paint.say(f"{_jobs(aside)} in quarantine would not go on either", "magenta")


def _print_strands(strands: list[Strand]) -> None:
    table = paint.table(
        "task", "jobs", "such as", "problem", "why", right=("jobs", "such as"), free=("task", "why")
    )
    for each in strands:
        why = paint.text(paint.line(each.reason))
        why.no_wrap = False
        count = each.jobs or each.quarantined
        table.add_row(
            paint.text(each.task),
            paint.text(paint.number(count)),
            paint.text(each.found[0].job),
            paint.text(SAID[each.problem], "red" if each.jobs else "magenta"),
            why,
        )
    paint.show(table)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{paint.number(count)} jobs"


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{paint.number(count)} tasks"

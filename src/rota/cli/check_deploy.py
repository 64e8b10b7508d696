"""`rota check-deploy`: runs in flight that could not continue with this code. For CI, before a deploy."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, exit_with, print_error
from rota.cli.table import Column, Table
from rota.cli.target import Target, with_database
from rota.model.text import closest_name, counted, single_line

if TYPE_CHECKING:
    from rota import Rota
    from rota.engine.simulation.replay_check import ReplayProblem
    from rota.model.task import TaskDefinition
    from rota.store.jobs import ClaimedJob
    from rota.store.read.in_flight import InFlightJobRow, InFlightTaskRow

BATCH_JOBS = 100
"""Jobs whose journals are read together."""

PROBLEM_TITLES = {
    "task": "unknown task",
    "arguments": "arguments do not fit",
    "replay": "history does not fit",
    "error": "error during replay",
}


class StrandedJob(msgspec.Struct, frozen=True):
    job: int
    run: int
    state: str


class StrandedGroup(msgspec.Struct):
    """Jobs of one task that could not continue, for one reason."""

    task: str
    problem: str
    reason: str
    jobs: int = 0
    """Number of jobs without those in quarantine, which are not run anyway."""
    quarantined: int = 0
    affected: list[StrandedJob] = msgspec.field(default_factory=list)
    """The affected jobs; for a task that no longer exists, only one of them."""

    def add(self, job: InFlightJobRow) -> None:
        self.affected.append(StrandedJob(job.job, job.run or job.job, job.state))
        if job.state == "quarantined":
            self.quarantined += 1
        else:
            self.jobs += 1


class CheckedTask(msgspec.Struct):
    """Check of one task that exists."""

    task: str
    jobs: int
    checked: int = 0
    replayed: int = 0
    unserved_queues: dict[str, int] = msgspec.field(default_factory=dict)
    """Queue → number of jobs, for queues that no task of the app uses."""


class DeployReport(msgspec.Struct):
    app: str
    stranded_count: int = 0
    stranded_jobs: list[StrandedGroup] = msgspec.field(default_factory=list)
    tasks: list[CheckedTask] = msgspec.field(default_factory=list)


@click.command("check-deploy")
@with_database
@click.argument("name", metavar="MODULE:APP", required=False)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    metavar="N",
    show_default=True,
    help="Maximum number of jobs checked per task: running ones first, then the oldest.",
)
@click.option("--newest", is_flag=True, help="Check the newest jobs before the oldest.")
@click.option(
    "--no-replay", is_flag=True, help="Run none of the app's code: check only names and arguments."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check_deploy(
    target: Target, name: str | None, limit: int, newest: bool, no_replay: bool, as_json: bool
) -> None:
    """Check that runs in flight can continue with the code of MODULE:APP. Exit code 1 if some cannot.

    Run it with the new code, on the database that the old code uses, before you deploy. It finds jobs of
    tasks that no longer exist, arguments that no longer fit, and journals that no longer replay.

    It writes nothing, runs no step and starts nothing. But for every run with recorded steps it runs the
    code between them, up to the last recorded one; --no-replay prevents that.
    """
    target = target.with_overrides(name, None, None)
    if target.app is None:
        raise click.UsageError(
            "no app is given: run `rota check-deploy MODULE:APP`, or set ROTA_APP"
        )
    report = DeployReport(target.app)

    async def run_check(app: Rota) -> DeployCheck:
        check = DeployCheck(app, report, limit, newest=newest, with_replay=not no_replay)
        await check.run()
        return check

    check = target.run(run_check)
    if as_json:
        output.print_json(report)
    else:
        _print(report, newest=newest)
    if not report.stranded_count:
        return
    if not as_json:
        output.hint(
            "ctx.version(…) keeps the old way for old runs; or let the old code finish them first, or "
            "cancel them. `rota show JOB` says how far one has come"
        )
    print_error(f"{counted(report.stranded_count, 'job')} would strand with {report.app}")
    if check.has_stuck_thread:
        # Python would wait for that thread forever at exit.
        sys.stdout.flush()
        os._exit(FAILED)
    exit_with(FAILED)


class DeployCheck:
    """Check of all jobs in flight, task by task."""

    def __init__(
        self, app: Rota, report: DeployReport, max_jobs: int, *, newest: bool, with_replay: bool
    ) -> None:
        self._app = app
        self._report = report
        self._max_jobs = max_jobs
        self._newest = newest
        self._with_replay = with_replay
        self._payload_limit = app.settings.payload_limit
        self.has_stuck_thread = False
        """True if a thread is still running because its code did not reach the recorded position."""
        self._queues = {task.policy.queue for task in app.registry.tasks.values()}

    async def run(self) -> None:
        from rota.engine.db_clock import DatabaseClock
        from rota.store.read import in_flight, runs

        report = self._report
        self._session = in_flight.ReadOnlySession((await self._app.open()).database)
        [now] = await self._session.run_with_retry(runs.database_time())
        self._clock = DatabaseClock(now)
        with _refuse_database(self._app):
            for row in await self._session.run_with_retry(in_flight.tasks()):
                task = self._app.registry.get(row.task)
                pending = (
                    self._check_missing_task(row) if task is None else self._check_task(task, row)
                )
                report.stranded_jobs += await pending
        report.stranded_jobs.sort(key=lambda each: (-each.jobs, each.task, each.reason))
        report.stranded_count = sum(each.jobs for each in report.stranded_jobs)

    async def _check_missing_task(self, row: InFlightTaskRow) -> list[StrandedGroup]:
        from rota.store.read import in_flight

        oldest = await self._session.run_with_retry(in_flight.jobs(row.task, 1))
        near = closest_name(row.task, self._app.registry.tasks)
        reason = f"{self._report.app} has {repr(near) + ', but ' if near else ''}no {row.task!r}"
        stranded = StrandedGroup(row.task, "task", reason)
        for job in oldest:
            stranded.add(job)
        stranded.jobs, stranded.quarantined = row.jobs - row.quarantined, row.quarantined
        return [stranded] if oldest else []

    async def _check_task(self, task: TaskDefinition, row: InFlightTaskRow) -> list[StrandedGroup]:
        from rota.store.read import in_flight

        checked = CheckedTask(task.name, row.jobs)
        self._report.tasks.append(checked)
        stranded: dict[ReplayProblem, StrandedGroup] = {}
        query = in_flight.jobs(task.name, self._max_jobs, newest_first=self._newest)
        jobs = await self._session.run_with_retry(query)
        for start in range(0, len(jobs), BATCH_JOBS):
            async for job, problem in self._find_problems(
                task, jobs[start : start + BATCH_JOBS], checked
            ):
                new = StrandedGroup(task.name, problem.kind, problem.reason)
                stranded.setdefault(problem, new).add(job)
        return list(stranded.values())

    async def _find_problems(
        self, task: TaskDefinition, jobs: list[InFlightJobRow], checked: CheckedTask
    ) -> AsyncIterator[tuple[InFlightJobRow, ReplayProblem]]:
        from rota.engine.simulation.replay_check import check_arguments, check_replay
        from rota.engine.worker.job_inputs import load_inputs, load_journal

        claimed = {job.job: _as_claimed_job(job, task) for job in jobs}
        begun = [claimed[job.job] for job in jobs if job.has_steps]
        await load_inputs(begun, {task.name: task}, self._session)
        await load_journal(begun if self._with_replay else [], self._session, self._clock)
        results = await self._read_input_results([job for job in jobs if not job.has_steps])
        for job in jobs:
            checked.checked += 1
            if job.queue not in self._queues:
                checked.unserved_queues[job.queue] = checked.unserved_queues.get(job.queue, 0) + 1
            claimed_job = claimed[job.job]
            problem = check_arguments(
                task, claimed_job.args, None if job.has_steps else job.inputs, results
            )
            if problem is None and job.has_steps and self._with_replay:
                checked.replayed += 1
                problem = await check_replay(
                    task, claimed_job, self._clock, self._session, self._payload_limit
                )
            if problem is not None:
                self.has_stuck_thread |= problem.timed_out and not task.is_async
                yield job, problem

    async def _read_input_results(self, jobs: list[InFlightJobRow]) -> dict[int, Any]:
        """Return the results that these jobs take as input, by the job that produced each."""
        from rota.engine.simulation.replay_check import input_job_ids
        from rota.store import flows

        ids = {id for job in jobs for id in input_job_ids(job.inputs).values()}
        if not ids:
            return {}
        return dict(await self._session.run_with_retry(flows.job_results(sorted(ids))))


@contextmanager
def _refuse_database(app: Rota) -> Iterator[None]:
    """End the replay of a job when its code accesses the database: it must not start or signal anything."""
    from rota.engine.simulation.replay_check import stop_here

    app.open = stop_here  # type: ignore[method-assign]
    try:
        yield
    finally:
        del app.open


def _as_claimed_job(job: InFlightJobRow, task: TaskDefinition) -> ClaimedJob:
    from rota.store.jobs import ClaimedJob

    return ClaimedJob(
        claim=0,
        job=job.job,
        attempt=job.attempt,
        crashes=0,
        lane=0,
        seq=0,
        task=task.name,
        queue=job.queue,
        args=job.args,
        options=job.options,
        expired=None,
        run=job.run,
        inputs=job.inputs,
        checkpoint=job.checkpoint,
        has_steps=job.has_steps,
    )


# Output


def _print(report: DeployReport, *, newest: bool) -> None:
    if report.stranded_jobs:
        STRANDED.print(report.stranded_jobs, datetime.now(UTC))
        click.echo()
    checked = sum(each.checked for each in report.tasks)
    replayed = sum(each.replayed for each in report.tasks)
    if not checked and not report.stranded_jobs:
        output.print_text("nothing is in flight")
        return
    replayed_text = f", {output.format_count(replayed)} of them replayed" if replayed else ""
    result = "" if report.stranded_jobs else f": all continue with {report.app}"
    output.print_text(
        f"checked {counted(checked, 'job')} of {counted(len(report.tasks), 'task')}{replayed_text}{result}",
        "dim",
    )
    for each in report.tasks:
        _print_warnings(report.app, each, "newest" if newest else "oldest")
    quarantined = sum(each.quarantined for each in report.stranded_jobs)
    if quarantined:
        output.print_text(
            f"{counted(quarantined, 'job')} in quarantine would not continue either", "magenta"
        )


def _print_warnings(app: str, task: CheckedTask, order: str) -> None:
    if task.checked < task.jobs:
        output.print_text(
            f"of the {counted(task.jobs, 'job')} of {task.task} only "
            f"{output.format_count(task.checked)} were checked, "
            f"the running ones and the {order}; check more with --limit",
            "yellow",
        )
    for queue, count in task.unserved_queues.items():
        output.print_text(
            f"{counted(count, 'job')} of {task.task}: in queue {queue!r}, which is not the queue of any "
            f"task of {app}; some worker has to serve it with -q {queue}",
            "yellow",
        )


STRANDED = Table["StrandedGroup"](
    Column("task", lambda row, now: row.task, shrinks=True),
    Column("jobs", lambda row, now: output.format_count(row.jobs or row.quarantined), right=True),
    Column("example", lambda row, now: row.affected[0].job, right=True),
    Column(
        "problem",
        lambda row, now: PROBLEM_TITLES[row.problem],
        lambda row: "red" if row.jobs else "magenta",
    ),
    Column("reason", lambda row, now: single_line(row.reason), wraps=True),
)

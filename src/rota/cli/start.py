"""`rota start`: start a task or a flow from a shell.

With an app, its task or flow validates the arguments before anything starts. Without an app, a task is
started with the arguments as given, and a note states that they were not validated. A flow needs the
app, because its jobs are defined in its code.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, USAGE_ERROR, CommandError, exit_with, print_note
from rota.cli.options.json_input import parse_json, read_object
from rota.cli.target import Target, operator_context, with_target
from rota.model.text import single_line, suggest_name

if TYPE_CHECKING:
    from rota import Rota, Run
    from rota.store.connection import PgConnection
    from rota.store.database import Database
    from rota.store.runs import RunOutcome


class DurationParameter(click.ParamType[timedelta]):
    """Duration in seconds, or with units: 90, 1.5s, 250ms, 10m, 2h30m, 7d."""

    name = "duration"
    _unit_seconds: ClassVar = {
        "ms": 0.001,
        "": 1,
        "s": 1,
        "m": 60,
        "min": 60,
        "h": 3600,
        "d": 86400,
    }
    _part_pattern = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|)\s*")

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        if not re.fullmatch(f"(?:{self._part_pattern.pattern})+", value):
            self.fail(f"{value!r} is not a duration; write 90, 1.5s, 10m, 2h30m or 7d", param, ctx)
        parts = self._part_pattern.findall(value)
        try:
            return timedelta(
                seconds=sum(float(size) * self._unit_seconds[unit] for size, unit in parts)
            )
        except OverflowError:
            self.fail(f"{value!r} is too long; the maximum is 999999999d", param, ctx)


@click.command()
@with_target
@click.argument("name", metavar="TASK")
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--args", "document", metavar="JSON", help="Arguments as one JSON object; - reads stdin."
)
@click.option(
    "--key", metavar="TEXT", help="Deduplication key: a second start with it returns the same run."
)
@click.option(
    "--delay", type=DurationParameter(), help="Delay before the first attempt: 90, 10m, 2h."
)
@click.option(
    "--priority",
    type=click.IntRange(0, 9),
    metavar="N",
    help="Priority from 0 to 9; larger runs sooner.",
)
@click.option("--queue", metavar="NAME", help="Queue, in place of the task's own.")
@click.option("--wait", is_flag=True, help="Wait for the run to end, and print its result.")
@click.option("--timeout", type=DurationParameter(), help="With --wait: maximum time to wait.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def start(
    target: Target,
    name: str,
    arguments: tuple[str, ...],
    document: str | None,
    key: str | None,
    delay: timedelta | None,
    priority: int | None,
    queue: str | None,
    wait: bool,
    timeout: timedelta | None,
    as_json: bool,
) -> None:
    """Start TASK, a task or a flow. Prints the run's id, and with --wait its result.

    A VALUE is parsed as JSON if it is valid JSON, else it is text: `n=3 path=a.png tags='["x"]'`.

    With `-a MODULE:APP` (or ROTA_APP) the arguments are validated before anything starts. Without it, a
    task is started without validation: a job of an unknown task stays queued, and wrong arguments fail
    on the worker. A flow needs its code.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    parsed = read_arguments(document, arguments)
    options = {"key": key, "delay": delay, "priority": priority, "queue": queue}

    async def start_run(app: Rota) -> tuple[Run[Any], RunOutcome | None]:
        if target.app is None:
            run = await _start_unchecked(app, name, parsed, options)
            print_note(
                f"not validated: without -a MODULE:APP it is unknown whether {name!r} exists "
                "and accepts these arguments (a flow cannot be started without its app)"
            )
        else:
            run = await _start(app, target.app, name, parsed, options)
        if not run.created:
            print_note(f"key {key!r} is in use; this is the run that has it")
        if not as_json:
            click.echo(run.id)
        return run, await _wait_for_outcome(app, run, timeout) if wait else None

    run, outcome = target.run(start_run)
    if as_json:
        output.print_json({"run": str(run.id), "created": run.created, **_as_document(outcome)})
    elif outcome is not None and outcome.state == "succeeded":
        click.echo(output.format_json(outcome.result or b"null"))
    if outcome is not None and outcome.state != "succeeded":
        if as_json:
            exit_with(FAILED)
        raise CommandError(f"run {run.id} {_describe_outcome(outcome)}; see `rota show {run.id}`")


def read_arguments(document: str | None, pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return the arguments by name. A pair overrides the same name in the document."""
    arguments = {} if document is None else read_object(document, "--args")
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandError(f"{pair!r} is not an argument: write NAME=VALUE", USAGE_ERROR)
        try:
            arguments[name] = parse_json(value)
        except (ValueError, RecursionError):
            arguments[name] = value
    return arguments


async def _start(
    app: Rota, app_name: str, name: str, arguments: dict[str, Any], options: dict[str, Any]
) -> Run[Any]:
    flow = app.registry.flows.get(name)
    if flow is not None:
        if options.pop("queue") is not None:
            raise CommandError(
                f"{name!r} is a flow, each of its tasks has a queue of its own; leave out --queue",
                USAGE_ERROR,
            )
        return await _perform_start(app, name, arguments, options)
    task = app.registry.get(name)
    if task is None:
        raise CommandError(
            f"{app_name} has no task {name!r}, and no such flow; {_name_hint(app, name)}",
            USAGE_ERROR,
        )
    return await _perform_start(app, name, arguments, options)


async def _perform_start(
    app: Rota, name: str, arguments: dict[str, Any], options: dict[str, Any]
) -> Run[Any]:
    from rota import Run
    from rota.operations.run_documents import StartRunRequest
    from rota.operations.runs import start_run

    delay = options.pop("delay")
    body = StartRunRequest(
        name, arguments, delay=None if delay is None else delay.total_seconds(), **options
    )
    started = await start_run.call(operator_context(app), body=body)
    return Run(app, int(started.run), app.registry.get(name), created=started.created)


def _name_hint(app: Rota, name: str) -> str:
    flows = app.registry.flows.values()
    flow_tasks = {node.task.name for flow in flows for node in flow.nodes.values()}
    names = sorted({*app.registry.tasks, *app.registry.flows} - flow_tasks)
    return suggest_name(name, names)


async def _start_unchecked(
    app: Rota, task: str, arguments: dict[str, Any], options: dict[str, Any]
) -> Run[Any]:
    from rota import Run
    from rota.model import codec
    from rota.model.task import check_name
    from rota.operations.runs import start_audited
    from rota.store import jobs
    from rota.store.database import run as run_query
    from rota.store.jobs import StartJob

    job = StartJob(
        task=check_name("task", task),
        args=codec.encode(arguments, f"the arguments of task {task!r}", app.settings.payload_limit),
        queue=check_name("queue", options["queue"] or "default"),
        priority=options["priority"] or 0,
        key=options["key"],
        delay=options["delay"],
    )
    await _refuse_flow(app, job.task, job.queue)

    async def start_job(connection: PgConnection) -> Run[Any]:
        query = jobs.start(job, notify=app.settings.notify)
        [started] = await run_query(connection, query, app.settings.schema)
        return Run(app, started.run, created=started.created)

    return await start_audited(operator_context(app), task, start_job)


async def _refuse_flow(app: Rota, name: str, queue: str) -> None:
    """Raise CommandError if the database knows the name only as a flow.

    It does if no worker knows such a task and the last run of the name was a flow's.
    """
    from rota.operations.run_search import find_runs
    from rota.store.read import runs as read_runs
    from rota.store.read.run_list import RunFilter

    database = (await app.open()).database
    [eligible_workers] = await database.run(read_runs.count_eligible_workers(queue, name))
    if eligible_workers:
        return
    last = await find_runs(operator_context(app).read, RunFilter(name=name), 1)
    if last.positions and last.positions[0].is_flow:
        raise CommandError(
            f"{name!r} is a flow, and its jobs are defined in code; name its app with -a MODULE:APP",
            USAGE_ERROR,
        )


async def _wait_for_outcome(app: Rota, run: Run[Any], timeout: timedelta | None) -> RunOutcome:
    """Wait for the run and return its outcome as stored, without decoding it into a type.

    A flow's outcome has the results of its final tasks by name, or the first failure.
    """
    client = await app.open()
    client.listen()
    try:
        outcome = await client.results.outcome(
            run.id, None if timeout is None else timeout.total_seconds()
        )
    except TimeoutError:
        assert timeout is not None
        raise CommandError(
            f"run {run.id} has no outcome after {output.format_duration(timeout.total_seconds())}; it is "
            f"{await run.status()} and continues; see `rota show {run.id}`"
        ) from None
    return await _flow_outcome(client.database, outcome) if outcome.is_flow else outcome


async def _flow_outcome(database: Database, outcome: RunOutcome) -> RunOutcome:
    from rota.operations.run_detail import results_by_name
    from rota.store import runs

    if outcome.state == "succeeded":
        results = results_by_name(
            outcome.name, await database.run_with_retry(runs.results(outcome.run))
        )
        return msgspec.structs.replace(outcome, result=msgspec.json.encode(results))
    failed = await database.run_with_retry(runs.failures(outcome.run, 1))
    if outcome.state != "failed" or not failed:
        return outcome
    first = failed[0]
    error = json.loads(first.error or b"{}")
    failed_job = {"job": first.job, "task": first.task, "state": first.state}
    return msgspec.structs.replace(outcome, error=msgspec.json.encode({**failed_job, **error}))


def _as_document(outcome: RunOutcome | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    return {
        "state": outcome.state,
        "result": None if outcome.result is None else msgspec.Raw(outcome.result),
        "error": None if outcome.error is None else msgspec.Raw(outcome.error),
    }


def _describe_outcome(outcome: RunOutcome) -> str:
    match outcome.state:
        case "cancelled":
            return "was cancelled"
        case "expired":
            return "expired before a worker claimed it"
    error = json.loads(outcome.error or b"{}")
    prefix = f"failed: job {error.get('job')} ({error.get('task')}) " if outcome.is_flow else ""
    if error.get("state") == "expired":
        return f"{prefix}expired before a worker claimed it"
    return single_line(
        f"{prefix}failed at attempt {error.get('attempt')}: {error.get('type')}: {error.get('message')}"
    )

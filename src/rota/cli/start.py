"""`rota start`: a run of a task or a flow, from a shell.

With an app, its task or flow checks the arguments, and nothing starts that it would refuse. Without one a
task's job is started as it was typed, and the command says that nobody checked; a flow cannot be: which
jobs it consists of is in its code.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import rich_click as click

from rota.cli import paint
from rota.cli.endings import FAILED, MISTAKE, Told, leave, note
from rota.cli.show_flow import results_by_name
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota import Rota, Run
    from rota.store.database import Database
    from rota.store.runs import Ending


class Span(click.ParamType[timedelta]):
    """Seconds, or a number with a unit: 90, 1.5s, 250ms, 10m, 2h30m, 7d."""

    name = "duration"
    _unit: ClassVar = {"ms": 0.001, "": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
    _part = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|)\s*")

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        if not re.fullmatch(f"(?:{self._part.pattern})+", value):
            self.fail(f"{value!r} is not a duration; write 90, 1.5s, 10m, 2h30m or 7d", param, ctx)
        parts = self._part.findall(value)
        try:
            return timedelta(seconds=sum(float(size) * self._unit[unit] for size, unit in parts))
        except OverflowError:
            self.fail(f"{value!r} is longer than anybody can wait", param, ctx)


@click.command()
@with_target
@click.argument("name", metavar="TASK")
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--args", "document", metavar="JSON", help="Arguments as one JSON object; - is stdin."
)
@click.option("--key", metavar="TEXT", help="The same key gives the same run.")
@click.option("--delay", type=Span(), help="Not before so long: 90, 10m, 2h.")
@click.option("--priority", type=click.IntRange(0, 9), metavar="N", help="0 to 9, larger sooner.")
@click.option("--queue", metavar="NAME", help="Instead of the task's own.")
@click.option("--wait", is_flag=True, help="Wait for the run to end, and print its result.")
@click.option("--timeout", type=Span(), help="With --wait: at most so long.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
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
    """Start TASK, a task or a flow. Prints the run's id; with --wait its result, too.

    A VALUE is read as JSON where it is JSON, and as text where it is not: `n=3 path=a.png tags='["x"]'`.

    With `-a MODULE:APP` (or ROTA_APP) the arguments are checked before anything starts. Without, a task is
    started unchecked: a wrong name waits for a worker that never comes, wrong arguments fail there. A flow
    needs its code.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout limits --wait; say both")
    given = read_arguments(document, arguments)
    how = {"key": key, "delay": delay, "priority": priority, "queue": queue}

    async def starting(app: Rota) -> tuple[Run[Any], Ending | None]:
        if target.app is None:
            run = await _start_unchecked(app, name, given, how)
            note(
                f"unchecked: without -a MODULE:APP nobody looked whether {name!r} exists "
                "and takes these arguments (a flow cannot be started so)"
            )
        else:
            run = await _start(app, target.app, name, given, how)
        if not run.created:
            note(f"key {key!r} was taken: this is the run that has it")
        if not as_json:
            click.echo(run.id)
        return run, await _ending(app, run, timeout) if wait else None

    run, ending = target.ask(starting)
    if as_json:
        paint.say_json({"run": run.id, "created": run.created, **_as_document(ending)})
    elif ending is not None and ending.state == "succeeded":
        click.echo(paint.pretty(ending.result or b"null"))
    if ending is not None and ending.state != "succeeded":
        if as_json:
            leave(FAILED)
        raise Told(f"run {run.id} {_what_happened(ending)}; see `rota show {run.id}`")


def read_arguments(document: str | None, pairs: tuple[str, ...]) -> dict[str, Any]:
    """What was typed, by name. A pair wins over the same name in the document."""
    named: dict[str, Any] = {}
    if document is not None:
        text = sys.stdin.read() if document == "-" else document
        try:
            named = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise Told(f"--args is not JSON: {error}", MISTAKE) from None
        if not isinstance(named, dict):
            raise Told(
                "--args must be a JSON object, the task's arguments by name, such as "
                '{"path": "a.png"}',
                MISTAKE,
            )
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Told(f"{pair!r} is not an argument: write NAME=VALUE", MISTAKE)
        try:
            named[name] = json.loads(value, parse_constant=_refuse)
        except (ValueError, RecursionError):
            named[name] = value
    return named


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a number JSON has")


async def _start(
    app: Rota, of: str, name: str, given: dict[str, Any], how: dict[str, Any]
) -> Run[Any]:
    from rota import Flow, Task

    flow = app.registry.flows.get(name)
    if flow is not None:
        if how.pop("queue") is not None:
            raise Told(
                f"{name!r} is a flow, each of its tasks has a queue of its own; leave out --queue",
                MISTAKE,
            )
        return await Flow(app, flow).using(**how).start(**given)
    task = app.registry.get(name)
    if task is None:
        raise Told(f"{of} has no task {name!r}, and no such flow; {_hint(app, name)}", MISTAKE)
    return await Task[Any, Any](app, task).using(**how).start(**given)


def _hint(app: Rota, name: str) -> str:
    flows = app.registry.flows.values()
    parts = {node.task.name for flow in flows for node in flow.nodes.values()}
    names = sorted({*app.registry.tasks, *app.registry.flows} - parts)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(names) or 'none'}"


async def _start_unchecked(
    app: Rota, task: str, given: dict[str, Any], how: dict[str, Any]
) -> Run[Any]:
    from rota import Run
    from rota.model import codec
    from rota.model.task import check_name
    from rota.store.jobs import Start

    job = Start(
        task=check_name("task", task),
        args=codec.encode(given, f"the arguments of task {task!r}", app.settings.payload_limit),
        queue=check_name("queue", how["queue"] or "default"),
        priority=how["priority"] or 0,
        key=how["key"],
        delay=how["delay"],
    )
    client = await app.open()
    await _refuse_flow(client.database, job.task, job.queue)
    started = await client.start(job)
    return Run(app, started.run, created=started.created)


async def _refuse_flow(database: Database, name: str, queue: str) -> None:
    """As far as the database knows: where no worker knows such a task, and the last of the name was a
    flow's run."""
    from rota.app.listing import find
    from rota.cli.matching import asker
    from rota.store import views
    from rota.store.listing import Matching

    [takers] = await database.run(views.takers(queue, name))
    if takers:
        return
    last = await find(asker(database), Matching(name=name), 1)
    if last.spots and last.spots[0].is_flow:
        raise Told(
            f"{name!r} is a flow, and which jobs it consists of is in its code; say which app has it: "
            "-a MODULE:APP",
            MISTAKE,
        )


async def _ending(app: Rota, run: Run[Any], timeout: timedelta | None) -> Ending:
    """The outcome, as it was stored: what a type would make of it is not asked here. A flow's is what its
    last tasks returned, by name, or the first failure in it."""
    client = await app.open()
    client.listen()
    try:
        ending = await client.waiting.outcome(
            run.id, None if timeout is None else timeout.total_seconds()
        )
    except TimeoutError:
        assert timeout is not None
        raise Told(
            f"run {run.id} has no outcome after {paint.span(timeout.total_seconds())}, it is "
            f"{await run.status()} and goes on; see `rota show {run.id}`"
        ) from None
    return await _flow_ending(client.database, ending) if ending.is_flow else ending


async def _flow_ending(database: Database, ending: Ending) -> Ending:
    from rota.store import runs

    if ending.state == "succeeded":
        results = results_by_name(ending.name, await database.insist(runs.results(ending.run)))
        return msgspec.structs.replace(ending, result=msgspec.json.encode(results))
    failed = await database.insist(runs.failures(ending.run, 1))
    if ending.state != "failed" or not failed:
        return ending
    first = failed[0]
    error = json.loads(first.error or b"{}")
    whose = {"job": first.job, "task": first.task, "state": first.state}
    return msgspec.structs.replace(ending, error=msgspec.json.encode({**whose, **error}))


def _as_document(ending: Ending | None) -> dict[str, Any]:
    if ending is None:
        return {}
    return {
        "state": ending.state,
        "result": None if ending.result is None else msgspec.Raw(ending.result),
        "error": None if ending.error is None else msgspec.Raw(ending.error),
    }


def _what_happened(ending: Ending) -> str:
    match ending.state:
        case "cancelled":
            return "was cancelled"
        case "expired":
            return "expired before a worker took it"
    error = json.loads(ending.error or b"{}")
    whose = f"failed: job {error.get('job')} ({error.get('task')}) " if ending.is_flow else ""
    if error.get("state") == "expired":
        return f"{whose}expired before a worker took it"
    return paint.line(
        f"{whose}failed at attempt {error.get('attempt')}: {error.get('type')}: {error.get('message')}"
    )

"""Forks: new runs that begin in the middle of an existing one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from rota.app.run import Run
from rota.engine.audited import run_audited_query
from rota.engine.telemetry.span_names import FLOW
from rota.errors import ArgumentError, RunNotFound
from rota.store import runs
from rota.store.audit import AuditEntry
from rota.store.query import Query
from rota.store.runs import RunOutcome

if TYPE_CHECKING:
    from rota.app.client import Client
    from rota.app.flow import FlowTask
    from rota.app.rota import Rota

T = TypeVar("T")


async def fork(
    app: Rota,
    run: int,
    task: FlowTask | str | None,
    step: str | None,
    input: Mapping[str, Any] | None,
    by: str | None = None,
) -> Run[Any]:
    if (task is None) == (step is None):
        raise ArgumentError(
            "a fork needs a starting point; pass from_= with a task of the flow, or from_step= with a "
            "step of the task"
        )
    client = await app.open()
    outcome = await client.database.fetch_one(runs.outcome([run]))
    if outcome is None:
        raise RunNotFound(f"there is no run {run}")
    if step is not None:
        return await _fork_task(app, client, run, outcome, step, input, by)
    assert task is not None
    task = task if isinstance(task, str) else task.name
    return await _fork_flow(app, client, run, outcome, task, input, by)


async def _fork_flow(
    app: Rota,
    client: Client,
    run: int,
    outcome: RunOutcome,
    task: str,
    input: Mapping[str, Any] | None,
    by: str | None,
) -> Run[Any]:
    if not outcome.is_flow or not outcome.name:
        raise ArgumentError(
            f"run {run} is not one of a flow: start its task again, or fork it from one of its steps "
            "with from_step="
        )
    if input is not None:
        raise ArgumentError("a flow is forked with the input it had: start a new run of it instead")
    name = task if task.startswith(f"{outcome.name}.") else f"{outcome.name}.{task}"
    with app.tracing.start(outcome.name, kind=FLOW) as span:
        query = runs.fork(run, name, span.trace)
        forked, queues = await _run_fork(client, run, query, {"task": task}, by)
    if forked is None:
        raise ArgumentError(f"run {run} of flow {outcome.name!r} has no task {task!r}")
    client.notifier.notify(queues)
    return Run(app, forked, created=True)


async def _fork_task(
    app: Rota,
    client: Client,
    run: int,
    outcome: RunOutcome,
    step: str,
    input: Mapping[str, Any] | None,
    by: str | None,
) -> Run[Any]:
    if outcome.is_flow:
        raise ArgumentError(
            f"run {run} is one of a flow: fork it from one of its tasks with from_="
        )
    args: str | None = None
    definition = app.registry.tasks.get(outcome.name)
    if input is not None:
        if definition is None:
            raise ArgumentError(
                f"task {outcome.name!r} is not one of this app, so its input cannot be checked; fork it as "
                "it was, without input"
            )
        args = definition.encode((), dict(input), app.settings.payload_limit)
    with app.tracing.start(outcome.name) as span:
        query = runs.fork_job(run, step, args, span.trace)
        forked, queue = await _run_fork(client, run, query, {"step": step}, by)
    if forked is None:
        raise ArgumentError(
            f"run {run} has no recorded step {step!r}; list its steps with `rota show {run}`"
        )
    client.notifier.notify([queue])
    return Run(app, forked, definition, created=True)


async def _run_fork(
    client: Client,
    run: int,
    query: Query[tuple[int | None, T]],
    point: dict[str, Any],
    by: str | None,
) -> tuple[int | None, T]:
    """Run a fork with its audit entry. Return the new run, or None, and its queue or queues."""
    return await run_audited_query(
        client.database,
        query,
        None if by is None else AuditEntry(by, "fork run", str(run), point),
        was_done=lambda answer: answer[0] is not None,
        is_idempotent=False,
    )

"""Forks: new runs that begin in the middle of an existing one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rota.app.run import Run
from rota.engine.audited import run_audited_query
from rota.engine.telemetry.span_names import FLOW
from rota.errors import ArgumentError, RunNotFound
from rota.store import runs
from rota.store.audit import AuditEntry

if TYPE_CHECKING:
    from rota.app.flow import FlowTask
    from rota.app.rota import Rota


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
    if task is not None:
        if not outcome.is_flow or not outcome.name:
            raise ArgumentError(
                f"run {run} is not one of a flow: start its task again, or fork it from one of its steps "
                "with from_step="
            )
        if input is not None:
            raise ArgumentError(
                "a flow is forked with the input it had: start a new run of it instead"
            )
        task = task if isinstance(task, str) else task.name
        name = task if task.startswith(f"{outcome.name}.") else f"{outcome.name}.{task}"
        with app.tracing.start(outcome.name, kind=FLOW) as span:
            query = runs.fork(run, name, span.trace)
            audit_entry = (
                None if by is None else AuditEntry(by, "fork run", str(run), {"task": task})
            )
            forked, queues = await run_audited_query(
                client.database, query, audit_entry, was_done=_is_forked, is_idempotent=False
            )
        if forked is None:
            raise ArgumentError(f"run {run} of flow {outcome.name!r} has no task {task!r}")
        client.notifier.notify(queues)
        return Run(app, forked, created=True)

    assert step is not None
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
        job_query = runs.fork_job(run, step, args, span.trace)
        audit_entry = None if by is None else AuditEntry(by, "fork run", str(run), {"step": step})
        forked_job, queue = await run_audited_query(
            client.database, job_query, audit_entry, was_done=_is_forked, is_idempotent=False
        )
    if forked_job is None:
        raise ArgumentError(
            f"run {run} has no recorded step {step!r}; list its steps with `rota show {run}`"
        )
    client.notifier.notify([queue])
    return Run(app, forked_job, definition, created=True)


def _is_forked(answer: tuple[int | None, Any]) -> bool:
    return answer[0] is not None

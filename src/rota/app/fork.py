"""Runs that begin in the middle of another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rota.app.run import Run
from rota.engine.deeds import act
from rota.engine.spans import FLOW
from rota.errors import ArgumentError, RunNotFound
from rota.store import runs
from rota.store.audit import Deed

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
            "a fork begins somewhere: say from_= with a task of the flow, or from_step= with a step of the "
            "task"
        )
    client = await app.open()
    ending = await client.database.one(runs.outcome([run]))
    if ending is None:
        raise RunNotFound(f"there is no run {run}")
    if task is not None:
        if not ending.is_flow or not ending.name:
            raise ArgumentError(
                f"run {run} is not one of a flow: start its task again, or fork it from one of its steps "
                "with from_step="
            )
        if input is not None:
            raise ArgumentError(
                "a flow is forked with the input it had: start a new run of it instead"
            )
        task = task if isinstance(task, str) else task.name
        name = task if task.startswith(f"{ending.name}.") else f"{ending.name}.{task}"
        with app.tracing.start(ending.name, what=FLOW) as span:
            query = runs.fork(run, name, span.trace)
            deed = None if by is None else Deed(by, "fork run", str(run), {"task": task})
            forked, queues = await act(client.database, query, deed, did=_is_forked, repeats=False)
        if forked is None:
            raise ArgumentError(f"run {run} of flow {ending.name!r} has no task {task!r}")
        client.news.tell(queues)
        return Run(app, forked, created=True)

    assert step is not None
    if ending.is_flow:
        raise ArgumentError(
            f"run {run} is one of a flow: fork it from one of its tasks with from_="
        )
    args: str | None = None
    definition = app.registry.tasks.get(ending.name)
    if input is not None:
        if definition is None:
            raise ArgumentError(
                f"task {ending.name!r} is not one of this app, so its input cannot be checked; fork it as "
                "it was, without input"
            )
        args = definition.encode((), dict(input), app.settings.payload_limit)
    with app.tracing.start(ending.name) as span:
        again = runs.fork_job(run, step, args, span.trace)
        deed = None if by is None else Deed(by, "fork run", str(run), {"step": step})
        copy, queue = await act(client.database, again, deed, did=_is_forked, repeats=False)
    if copy is None:
        raise ArgumentError(f"run {run} has not come to a step {step!r}")
    client.news.tell([queue])
    return Run(app, copy, definition, created=True)


def _is_forked(answer: tuple[int | None, Any]) -> bool:
    return answer[0] is not None

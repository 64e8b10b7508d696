"""Start of a task or flow: through the app's client, or on a connection of the user.

Celery, Dramatiq, RQ, Huey and Procrastinate each have their own name for starting a task. The error for
`task.delay(…)` contains Rota's.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from rota.app.run import Run
from rota.engine.execution.call import BoundFlow, BoundTask
from rota.engine.telemetry import tracing
from rota.engine.telemetry.span_names import FLOW
from rota.errors import ArgumentError
from rota.store import flows, jobs
from rota.store.jobs import StartedJob
from rota.store.user_connection import is_async, run_on, run_sync

if TYPE_CHECKING:
    from rota.app.rota import Rota
    from rota.app.sync import SyncRun

PEER_NAMES = frozenset(
    (
        "apply_async",
        "async_",
        "defer",
        "defer_async",
        "delay",
        "enqueue",
        "schedule",
        "send",
        "submit",
    )
)


Bound = BoundTask[Any] | BoundFlow


async def start(app: Rota, call: Bound, connection: Any) -> Run[Any]:
    """Start a job or a run. It is durable when this returns, or when `connection` commits."""
    if connection is None:
        client = await app.open()
        if isinstance(call, BoundTask):
            return started_run(app, call, await client.start(call.start))
        [started] = await client.start_runs([call])
        return started_run(app, call, started)
    with _start_span(app, call) as span:
        answer = _start_on(connection, app, call, span.trace)
        [started] = await answer if isinstance(answer, Awaitable) else answer
        span.set_attributes(tracing.start_attributes(started))
    return started_run(app, call, started)


def start_sync(app: Rota, call: Bound, connection: Any) -> SyncRun[Any]:
    """Blocking version of `start`. `connection` is used in this thread only."""
    if connection is None:
        return app.loop_thread.run(start(app, call, None)).sync
    if is_async(connection):
        noun = "task" if isinstance(call, BoundTask) else "flow"
        raise ArgumentError(
            f"a blocking start cannot use an async connection: await {noun}.options(on=…).start(…)"
        )
    return run_sync(start(app, call, connection)).sync


def started_run(app: Rota, call: Bound, started: StartedJob) -> Run[Any]:
    task = call.task if isinstance(call, BoundTask) else None
    return Run(app, started.run, task, created=started.created)


def _start_span(app: Rota, call: Bound) -> tracing.SpanScope:
    if isinstance(call, BoundTask):
        return app.tracing.start(call.name, [call.start.queue])
    return app.tracing.start(call.name, kind=FLOW)


def _start_on(
    connection: Any, app: Rota, call: Bound, trace: str | None
) -> list[StartedJob] | Awaitable[list[StartedJob]]:
    notify = app.settings.notify
    if isinstance(call, BoundTask):
        query = jobs.start(call.start, notify=notify, trace=trace)
    else:
        query = flows.start([call.run], notify=notify, traces=None if trace is None else [trace])
    return run_on(connection, query, app.settings.schema)


def missing_attribute(owner: object, noun: str, name: str) -> AttributeError:
    """Return the error for an attribute that a task or flow does not have."""
    message = f"{type(owner).__name__!r} object has no attribute {name!r}"
    if name in PEER_NAMES:
        message += (
            f"; use `await {noun}.start(…)`, or `{noun}.sync.start(…)` in code that does not await"
        )
    return AttributeError(message, name=name, obj=owner)

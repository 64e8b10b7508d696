"""Runs that a tick starts: of a task, a flow or an action, with the input of the schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.app.actions import check_config
from rota.app.flow import Flow
from rota.app.task import Task
from rota.engine.scheduling.fire import RunFactory, RunToStart, tick_options
from rota.errors import ArgumentError, WebhookRefused
from rota.model.schedule_view import ACTION_PREFIX
from rota.store import flows
from rota.store.schedules import ScheduleDefinition

if TYPE_CHECKING:
    from rota.app.rota import Rota

SAMPLE_TICK = datetime.min.replace(tzinfo=UTC)


def run_factories(app: Rota) -> dict[str, RunFactory]:
    """Return a run factory for each task and flow of the app."""

    def make_run(schedule: ScheduleDefinition, tick: datetime, backfilled: bool) -> RunToStart:
        return _run_for_tick(app, schedule, tick, backfilled)

    return {name: make_run for name in (*app.registry.tasks, *app.registry.flows)}


def run_factory(
    app: Rota, definition: ScheduleDefinition, trace: str | None = None
) -> Callable[[datetime, bool], RunToStart]:
    def make_run(tick: datetime, backfilled: bool) -> RunToStart:
        return replace(_run_for_tick(app, definition, tick, backfilled), trace=trace)

    return make_run


def check_schedule(app: Rota, definition: ScheduleDefinition) -> None:
    """Raise ArgumentError if the schedule could not be started.

    An action that is unknown to this app may belong to another one, which checks it.
    """
    definition.timetable  # noqa: B018 - raises if it is invalid
    definition.policy  # noqa: B018
    if definition.kind == "action" and definition.target not in app.registry.tasks:
        return
    try:
        if definition.kind == "flow" and definition.queue is not None:
            raise ArgumentError("each task of a flow has a queue of its own; leave out queue=")
        run_factory(app, definition)(SAMPLE_TICK, False)
        if definition.kind == "action":
            check_config(
                app, definition.target.removeprefix(ACTION_PREFIX), _decode_input(definition.input)
            )
    except (ArgumentError, WebhookRefused) as error:
        raise ArgumentError(f"schedule {definition.name!r}: {error}") from None


def _run_for_tick(
    app: Rota, schedule: ScheduleDefinition, tick: datetime, backfilled: bool
) -> RunToStart:
    options = tick_options(tick, backfilled)
    input = _decode_input(schedule.input)
    if schedule.kind == "flow":
        flow = app.registry.flows.get(schedule.target)
        if flow is None:
            raise ArgumentError(f"this app has no flow called {schedule.target!r}")
        run = Flow(app, flow).bind(**input).run
        columns = flows.with_options(run.jobs, options, run.size)
        return RunToStart(msgspec.structs.replace(run, jobs=columns), flow.plan.queues)
    task = app.registry.get(schedule.target)
    if task is None:
        if schedule.kind == "action":
            type = schedule.target.removeprefix(ACTION_PREFIX)
            raise ArgumentError(f"this app does not know action {type!r}: @app.action({type!r})")
        raise ArgumentError(f"this app has no task called {schedule.target!r}")
    start = Task[Any, Any](app, task).options(queue=schedule.queue).bind(**input).start
    return RunToStart(msgspec.structs.replace(start, options=options), [start.queue])


def _decode_input(document: bytes) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(document)
    return value

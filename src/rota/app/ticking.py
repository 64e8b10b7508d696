"""What a tick starts: the run of a task, of a flow or of an action, with the input its schedule has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.app.actions import check_config
from rota.app.flow import Flow
from rota.app.task import Task
from rota.engine.firing import Made, Make, options_of
from rota.errors import ArgumentError, WebhookRefused
from rota.model.agenda import ACTION
from rota.store import flows
from rota.store.schedules import Definition
from rota.store.ticks import Due

if TYPE_CHECKING:
    from rota.app.rota import Rota

ANY_TIME = datetime.min.replace(tzinfo=UTC)


def makers(app: Rota) -> dict[str, Make]:
    """For everything this app can start by the clock, how."""

    def make(due: Due, tick: datetime, backfilled: bool) -> Made:
        return _made(app, due, tick, backfilled)

    return {name: make for name in (*app.registry.tasks, *app.registry.flows)}


def maker(
    app: Rota, definition: Definition, trace: str | None = None
) -> Callable[[datetime, bool], Made]:
    def make(tick: datetime, backfilled: bool) -> Made:
        return replace(_made(app, definition, tick, backfilled), trace=trace)

    return make


def check(app: Rota, definition: Definition) -> None:
    """Refuse what could not be started. An action that this app does not know is somebody else's, perhaps,
    and checked there."""
    definition.timetable  # noqa: B018 - what cannot be is refused where it is made
    definition.policy  # noqa: B018
    if definition.kind == "action" and definition.target not in app.registry.tasks:
        return
    try:
        if definition.kind == "flow" and definition.queue is not None:
            raise ArgumentError("each task of a flow has a queue of its own; leave out queue=")
        maker(app, definition)(ANY_TIME, False)
        if definition.kind == "action":
            check_config(app, definition.target.removeprefix(ACTION), _read(definition.input))
    except (ArgumentError, WebhookRefused) as error:
        raise ArgumentError(f"schedule {definition.name!r}: {error}") from None


def _made(app: Rota, schedule: Definition | Due, tick: datetime, backfilled: bool) -> Made:
    options = options_of(tick, backfilled)
    input = _read(schedule.input)
    if schedule.kind == "flow":
        flow = app.registry.flows.get(schedule.target)
        if flow is None:
            raise ArgumentError(f"this app has no flow called {schedule.target!r}")
        run = Flow(app, flow).call(**input).run
        columns = flows.with_options(run.jobs, options, run.size)
        return Made(msgspec.structs.replace(run, jobs=columns), flow.plan.queues)
    task = app.registry.get(schedule.target)
    if task is None:
        if schedule.kind == "action":
            type = schedule.target.removeprefix(ACTION)
            raise ArgumentError(f"this app does not know action {type!r}: @app.action({type!r})")
        raise ArgumentError(f"this app has no task called {schedule.target!r}")
    start = Task[Any, Any](app, task).using(queue=schedule.queue).call(**input).start
    return Made(msgspec.structs.replace(start, options=options), [start.queue])


def _read(document: bytes) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(document)
    return value

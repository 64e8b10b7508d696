"""Schedules at run time: create, change, pause, trigger, backfill and list them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from rota.app.flow import Flow
from rota.app.run import Run
from rota.app.schedule_decorator import (
    TIMING_FIELDS,
    check_text,
    define_schedule,
    definition_fields,
    describe_target,
)
from rota.app.schedule_targets import check_schedule, run_factory
from rota.app.sync import SyncRun, sync_method
from rota.app.task import Task
from rota.engine.scheduling import backfill as scheduling_backfill
from rota.engine.scheduling import definitions
from rota.engine.telemetry.span_names import RUN_ID, SCHEDULE
from rota.errors import ArgumentError
from rota.model.options import check_options, show_options
from rota.model.schedule_options import SCHEDULE_DEFAULTS, ScheduleChanges
from rota.model.schedule_view import ACTION_PREFIX, Schedule, Tick
from rota.model.task import check_name
from rota.store import listeners
from rota.store.audit import AuditEntry
from rota.store.read import schedules as read_schedules
from rota.store.schedules import ScheduleDefinition

if TYPE_CHECKING:
    from rota.app.rota import Rota

STATES = ("active", "paused", "disabled", "ended")

PAGE_ROWS = 1000
"""Schedules that one query reads."""


class Schedules:
    """Schedule operations of an app, `app.schedules`."""

    def __init__(self, app: Rota) -> None:
        self._app = app

    @show_options(ScheduleChanges, SCHEDULE_DEFAULTS)
    async def create(
        self,
        name: str,
        task: Task[Any, Any] | Flow | str | None = None,
        *,
        action: str | None = None,
        by: str | None = None,
        **options: Unpack[ScheduleChanges],
    ) -> None:
        """Create a schedule of a task, a flow or an action.

        Tasks and flows are given as objects or by name, actions by type with their config. The remaining
        options are those of `@app.schedule`. Raise ArgumentError if the name is taken. `by` names the
        operator in the audit log, here and below.
        """
        check_options(Schedules.create, options, ScheduleChanges)
        kind, target = self._resolve_target(task, action)
        # The HTTP API passes every option, with None for those that were not given.
        if options.get("config") is None:
            options.pop("config", None)
        elif action is None:
            raise ArgumentError("config is an action's; a task or a flow has input")
        if options.get("input") is None:
            options.pop("input", None)
        elif action is not None:
            raise ArgumentError("input is a task's or a flow's; an action has config")
        definition = define_schedule(name, kind, target, options)
        check_schedule(self._app, definition)
        client = await self._app.open()
        audit_entry = _audit_entry(by, "create schedule", name)
        if not await definitions.create(client.database, definition, audit_entry):
            raise ArgumentError(
                f"there is a schedule called {name!r} already; change it with update, or delete it first"
            )
        client.notifier.notify([listeners.SCHEDULE_CHANGED])

    def _resolve_target(self, task: Any, action: str | None) -> tuple[str, str]:
        if (task is None) is (action is None):
            raise ArgumentError(
                "a schedule starts a task or flow, or runs an action: pass one of them"
            )
        if action is not None:
            return "action", ACTION_PREFIX + check_name("action", action)
        if not isinstance(task, str):
            return describe_target(task)
        if task in self._app.registry.flows:
            return "flow", task
        if task in self._app.registry.tasks:
            return "task", task
        raise ArgumentError(f"this app has no task and no flow called {task!r}")

    async def update(
        self, name: str, *, by: str | None = None, **changes: Unpack[ScheduleChanges]
    ) -> None:
        """Change the timing, the input or the policies of a schedule.

        A new timing applies from now on, all other changes to the next tick.
        """
        check_options(Schedules.update, changes, ScheduleChanges)
        client = await self._app.open()
        fields = definition_fields(name, changes)
        if any(fields.get(each) is not None for each in TIMING_FIELDS):
            fields = {**dict.fromkeys(TIMING_FIELDS), **fields}

        def check_definition(definition: ScheduleDefinition) -> None:
            if "config" in changes and definition.kind != "action":
                raise ArgumentError(f"config is an action's; schedule {name!r} has input")
            check_schedule(self._app, definition)

        audit_entry = _audit_entry(by, "update schedule", name)
        await definitions.update(client.database, name, fields, check_definition, audit_entry)
        client.notifier.notify([listeners.SCHEDULE_CHANGED])

    async def pause(self, name: str, reason: str = "by hand", *, by: str | None = None) -> None:
        """Start no runs until the schedule is resumed. Deployments do not change that."""
        client = await self._app.open()
        audit_entry = _audit_entry(by, "pause schedule", name)
        await definitions.pause(client.database, name, check_text("reason", reason), audit_entry)

    async def resume(self, name: str, *, by: str | None = None) -> None:
        """Continue with the next tick.

        Ticks during the pause are missed and can be backfilled. A schedule with `at` ticks now if its time
        has passed.
        """
        client = await self._app.open()
        await definitions.resume(client.database, name, _audit_entry(by, "resume schedule", name))
        client.notifier.notify([listeners.SCHEDULE_CHANGED])

    async def delete(self, name: str, *, by: str | None = None) -> None:
        """Delete the schedule and its ticks. Runs that it started continue.

        A schedule that the code of a live worker declares must be removed from that code first. Otherwise
        the next worker would create it again.
        """
        database = (await self._app.open()).database
        await definitions.delete(database, name, _audit_entry(by, "delete schedule", name))

    async def trigger(self, name: str, *, by: str | None = None) -> Run[Any]:
        """Start a run now, in addition to its ticks and in any state of the schedule."""
        client = await self._app.open()
        audit_entry = _audit_entry(by, "trigger schedule", name)
        with self._app.tracing.start(name, kind=SCHEDULE) as span:
            factory = partial(run_factory, self._app, trace=span.trace)
            id, queues = await scheduling_backfill.trigger(
                client.database, name, factory, audit_entry
            )
            span.set_attributes({RUN_ID: id})
        client.notifier.notify(queues)
        return Run(self._app, id, created=True)

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        on_progress: Callable[[int, int], None] = lambda done, many: None,
        by: str | None = None,
    ) -> list[Run[Any]]:
        """Start a run for each tick from `start` up to, but not including, `end` that has had none.

        The runs are concurrent, and `ctx.backfilled` is True in them. `on_progress` is called with the
        number of handled ticks and the total. Many runs are started in several transactions. If one fails,
        call this again: ticks with a run get no second one.
        """
        for each in (start, end):
            if each.tzinfo is None:
                raise ArgumentError(
                    f"{each.isoformat(sep=' ')} has no time zone; datetime(…, tzinfo=UTC) has one"
                )
        # In a local zone, arithmetic over a clock change would be off by an hour.
        start, end = start.astimezone(UTC), end.astimezone(UTC)
        client = await self._app.open()
        runs: list[Run[Any]] = []
        audit_entry = _audit_entry(by, "backfill schedule", name)
        with self._app.tracing.start(name, kind=SCHEDULE) as span:
            factory = partial(run_factory, self._app, trace=span.trace)
            batches = scheduling_backfill.backfill(
                client.database, name, start, end, factory, audit_entry
            )
            async for batch in batches:
                client.notifier.notify(batch.queues)
                runs += [Run(self._app, id, created=True) for id in batch.runs]
                on_progress(batch.done_ticks, batch.total_ticks)
        return runs

    async def get(self, name: str) -> Schedule:
        """Return the definition and the state of a schedule. Raise ScheduleNotFound."""
        client = await self._app.open()
        found = await client.database.fetch_one(read_schedules.schedules(name, limit=1))
        if found is None:
            raise definitions.not_found(name)
        return found

    async def ticks(self, name: str, limit: int = 100) -> list[Tick]:
        """Return the last ticks, the latest first: planned and actual time, process and outcome. A thousand
        are kept."""
        client = await self._app.open()
        found = await client.database.run(read_schedules.ticks(name, limit))
        if not found:
            await self.get(name)
        return found

    @property
    def sync(self) -> SyncSchedules:
        """Blocking methods: `app.schedules.sync.pause(…)`."""
        return SyncSchedules(self._app, self)

    async def list(self, *, tenant: str | None = None, state: str | None = None) -> list[Schedule]:
        """Return all schedules by name, or those of a tenant or in a state."""
        if state is not None and state not in STATES:
            raise ArgumentError(f"state is one of {', '.join(STATES)}, not {state!r}")
        client = await self._app.open()
        found: list[Schedule] = []
        while True:
            after = found[-1].name if found else None
            query = read_schedules.schedules(
                tenant=tenant, state=state, after=after, limit=PAGE_ROWS
            )
            page = await client.database.run(query)
            found += page
            if len(page) < PAGE_ROWS:
                return found


def _audit_entry(by: str | None, action: str, name: str) -> AuditEntry | None:
    return None if by is None else AuditEntry(by, action, name)


class SyncSchedules:
    """Blocking versions of the schedule operations."""

    def __init__(self, app: Rota, schedules: Schedules) -> None:
        self._app = app
        self._wrapped = schedules

    create = sync_method(Schedules.create)
    update = sync_method(Schedules.update)
    pause = sync_method(Schedules.pause)
    resume = sync_method(Schedules.resume)
    delete = sync_method(Schedules.delete)
    get = sync_method(Schedules.get)
    list = sync_method(Schedules.list)
    ticks = sync_method(Schedules.ticks)

    def trigger(self, name: str) -> SyncRun[Any]:
        """Blocking version of `app.schedules.trigger(…)`."""
        return SyncRun(self._app, self._app.loop_thread.run(self._wrapped.trigger(name)))

    def backfill(self, name: str, start: datetime, end: datetime) -> tuple[SyncRun[Any], ...]:
        """Blocking version of `app.schedules.backfill(…)`."""
        runs = self._app.loop_thread.run(self._wrapped.backfill(name, start, end))
        return tuple(SyncRun(self._app, each) for each in runs)

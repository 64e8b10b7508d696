"""Schedules that code declares, and handlers of scheduled actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeVar

from rota.app.flow import Flow
from rota.app.task import Task
from rota.errors import ArgumentError, DefinitionError
from rota.model import codec
from rota.model.retry import Retry
from rota.model.settings import Duration, to_seconds
from rota.model.task import check_name

if TYPE_CHECKING:
    from rota.app.rota import Rota, TaskDecorator
    from rota.app.schedules import Schedules
    from rota.model.schedule import CatchUp, Overlap
    from rota.store.schedules import ScheduleDefinition

S = TypeVar("S", bound="Task[Any, Any] | Flow")

MAX_NAME_CHARS = 200


class ScheduleMethods:
    """Schedule methods of `Rota`."""

    declared_schedules: dict[str, ScheduleDefinition]

    def schedule(
        self,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        at: datetime | None = None,
        tz: str = "UTC",
        name: str | None = None,
        input: Mapping[str, Any] | None = None,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "latest",
        at_most: int = 100,
        grace: Duration | None = None,
        jitter: Duration = 0.0,
        starts: datetime | None = None,
        ends: datetime | None = None,
        max_runs: int | None = None,
        pause_after: int | None = None,
        queue: str | None = None,
    ) -> Callable[[S], S]:
        """Start a task or a flow by the clock. Each tick starts one run over all instances.

        Write `@app.schedule("0 7 * * mon-fri", tz="Europe/Paris")` above `@app.task`, or
        `app.schedule(…)(flow)`.

        cron, every, at  timing: one of them; `tz` is the time zone of cron
        name             default: the name of the target; required if it has several schedules
        input            input of the task or flow
        overlap          if the previous run has not ended: "skip" the tick, "queue_one",
                         "cancel_running" to cancel that run, or "allow" both
        catch_up         after a time without workers: "none", the "latest" tick, or "all" of them,
                         up to `at_most`
        grace            maximum delay of a tick; a later one starts nothing
        jitter           maximum random delay in seconds
        starts, ends     no tick before, none after
        max_runs         number of runs after which the schedule ends
        pause_after      number of consecutive failures after which the schedule is paused
        """
        options: dict[str, Any] = {
            "every": every,
            "at": at,
            "tz": tz,
            "overlap": overlap,
            "catch_up": catch_up,
            "at_most": at_most,
            "grace": grace,
            "jitter": jitter,
            "starts": starts,
            "ends": ends,
            "max_runs": max_runs,
            "pause_after": pause_after,
            "queue": queue,
        }

        def declare(target: S) -> S:
            kind, target_name = describe_target(target)
            definition = define_schedule(
                name or target_name,
                kind,
                target_name,
                declared=True,
                cron=cron,
                input=input,
                **options,
            )
            if definition.name in self.declared_schedules:
                raise DefinitionError(
                    f"there is a schedule called {definition.name!r} already; give this one a name of its "
                    "own: @app.schedule(…, name=…)"
                )
            if isinstance(target, Task):
                _check_arguments(definition.name, target, input or {})
            self.declared_schedules[definition.name] = definition
            return target

        return declare

    def action(
        self,
        type: str,
        *,
        queue: str = "default",
        priority: int = 0,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> TaskDecorator:
        """Register a handler for scheduled actions of a type: `@app.action("report")`.

        The handler is a task, and the config of the action holds its arguments. It is retried and recorded
        like any task.
        """
        from rota.model.schedule_view import ACTION_PREFIX

        app: Rota = self  # type: ignore[assignment]
        return app.task(
            name=ACTION_PREFIX + check_name("action", type),
            queue=queue,
            priority=priority,
            retry=retry,
            timeout=timeout,
        )

    def actions(self, *types: str, queue: str = "default") -> None:
        """Enable built-in actions: `app.actions("task", "flow", "webhook")`.

        task     runs a task of this app: {"task": "resize", "input": {…}}
        flow     runs a flow: {"flow": "etl", "input": {…}}
        webhook  sends {"url": "https://…", "body": …} to a host in ROTA_WEBHOOK_HOSTS
        """
        from rota.app.actions import register_builtin

        for each in types:
            register_builtin(self, each, queue)  # type: ignore[arg-type]

    @property
    def schedules(self) -> Schedules:
        """Operations on schedules at run time: `await app.schedules.create(…)`."""
        from rota.app.schedules import Schedules

        return Schedules(self)  # type: ignore[arg-type]


def describe_target(target: Any) -> tuple[str, str]:
    if isinstance(target, Task):
        return "task", target.name
    if isinstance(target, Flow):
        return "flow", target.name
    raise DefinitionError(
        "a schedule is for a task or a flow: put @app.schedule(…) above @app.task, or call "
        "app.schedule(…)(flow)"
    )


def _check_arguments(name: str, task: Task[Any, Any], input: Mapping[str, Any]) -> None:
    """Raise DefinitionError if the names of the arguments do not fit the task.

    Types are checked when a worker starts, because they may be defined later in the module.
    """
    parameters = task._definition.parameters
    for argument in input:
        if argument not in parameters:
            raise DefinitionError(
                f"schedule {name!r}: task {task.name!r} takes no argument {argument!r}; it takes "
                f"{', '.join(parameters) or 'none'}"
            )
    for argument, parameter in parameters.items():
        if argument not in input and parameter.default is Parameter.empty:
            raise DefinitionError(
                f"schedule {name!r}: task {task.name!r} needs {argument!r}; pass it with "
                f"@app.schedule(…, input={{{argument!r}: …}})"
            )


def define_schedule(
    name: str,
    kind: str,
    target: str,
    *,
    declared: bool = False,
    input: Mapping[str, Any] | None = None,
    tenant: str | None = None,
    cron: str | None = None,
    every: Duration | None = None,
    at: datetime | None = None,
    tz: str = "UTC",
    overlap: Overlap = "skip",
    catch_up: CatchUp = "latest",
    at_most: int = 100,
    grace: Duration | None = None,
    jitter: Duration = 0.0,
    starts: datetime | None = None,
    ends: datetime | None = None,
    max_runs: int | None = None,
    pause_after: int | None = None,
    queue: str | None = None,
) -> ScheduleDefinition:
    """Return a checked definition with its times in UTC.

    Stored definitions are in UTC, too. Python never treats an ambiguous local time as equal to a time of
    another zone.
    """
    # Imported here, because an app without schedules needs none of it.
    from rota.model.schedule import SchedulePolicy
    from rota.model.timetable import Timetable
    from rota.store.schedules import ScheduleDefinition

    for field, text in (("name", name), ("tenant", tenant)):
        if text is not None:
            check_text(field, text)
    every_seconds = None if every is None else check_duration("every", every)
    Timetable(cron, tz, every_seconds, at)
    policy = SchedulePolicy(
        overlap,
        catch_up,
        at_most,
        None if grace is None else check_duration("grace", grace),
        check_duration("jitter", jitter),
        starts,
        ends,
        max_runs,
        pause_after,
    )
    return ScheduleDefinition(
        name,
        declared,
        kind,
        target,
        encode_input(name, input),
        tenant,
        cron,
        tz,
        every_seconds,
        to_utc("at", at),
        policy.overlap,
        policy.catch_up,
        policy.at_most,
        policy.grace,
        policy.jitter,
        to_utc("starts", policy.starts),
        to_utc("ends", policy.ends),
        policy.max_runs,
        policy.pause_after,
        None if queue is None else check_name("queue", queue),
    )


def check_duration(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise ArgumentError(f"{field} is a number of seconds or a timedelta, not {value!r:.60}")
    return to_seconds(value)


def to_utc(field: str, moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ArgumentError(
            f"{field}={moment.isoformat(sep=' ')} is outside the years 1 to 9999 in UTC"
        ) from None


def check_text(field: str, text: str) -> str:
    if not 0 < len(text) <= MAX_NAME_CHARS or codec.escape_unstorable(text) != text:
        raise ArgumentError(
            f"the {field} of a schedule has 1 to {MAX_NAME_CHARS} characters, without NUL or lone "
            f"surrogates, not {text!r:.60}"
        )
    return text


def encode_input(name: str, input: Mapping[str, Any] | None) -> bytes:
    return codec.encode(
        dict(input or {}), f"the input of schedule {name!r}", codec.MAX_JSON_BYTES
    ).encode()

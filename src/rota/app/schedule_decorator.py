"""Schedules that code declares, and handlers of scheduled actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from rota.app.flow import Flow
from rota.app.task import Task
from rota.errors import ArgumentError, DefinitionError
from rota.model import codec
from rota.model.options import check_options, show_options
from rota.model.schedule_options import SCHEDULE_DEFAULTS, ScheduleOptions, check_datetime
from rota.model.settings import to_seconds
from rota.model.task import POLICY_DEFAULTS, ActionOptions, check_name

if TYPE_CHECKING:
    from rota.app.rota import Rota, TaskDecorator
    from rota.app.schedules import Schedules
    from rota.store.schedules import ScheduleDefinition

S = TypeVar("S", bound="Task[Any, Any] | Flow")

MAX_NAME_CHARS = 200

TIMING_FIELDS = ("cron", "every", "at")


class ScheduleMethods:
    """Schedule methods of `Rota`."""

    declared_schedules: dict[str, ScheduleDefinition]

    @show_options(ScheduleOptions, SCHEDULE_DEFAULTS)
    def schedule(
        self,
        cron: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
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
        check_options(ScheduleMethods.schedule, options, ScheduleOptions)

        def declare(target: S) -> S:
            kind, target_name = describe_target(target)
            definition = define_schedule(
                name or target_name, kind, target_name, {"cron": cron, **options}, declared=True
            )
            if definition.name in self.declared_schedules:
                raise DefinitionError(
                    f"there is a schedule called {definition.name!r} already; give this one a name of its "
                    "own: @app.schedule(…, name=…)"
                )
            if isinstance(target, Task):
                _check_arguments(definition.name, target, options.get("input") or {})
            self.declared_schedules[definition.name] = definition
            return target

        return declare

    @show_options(ActionOptions, POLICY_DEFAULTS)
    def action(self, type: str, **options: Unpack[ActionOptions]) -> TaskDecorator:
        """Register a handler for scheduled actions of a type: `@app.action("report")`.

        The handler is a task, and the config of the action holds its arguments. It is retried and recorded
        like any task.
        """
        from rota.model.schedule_view import ACTION_PREFIX

        check_options(ScheduleMethods.action, options, ActionOptions)
        app: Rota = self  # type: ignore[assignment]
        return app.task(name=ACTION_PREFIX + check_name("action", type), **options)

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
    name: str, kind: str, target: str, options: Mapping[str, Any], *, declared: bool = False
) -> ScheduleDefinition:
    """Return a checked definition."""
    # Imported here, because an app without schedules needs none of it.
    from rota.store.schedules import ScheduleDefinition

    fields = {
        **SCHEDULE_DEFAULTS,
        **dict.fromkeys(("tenant", *TIMING_FIELDS, "queue")),
        "input": encode_input(name, None),
        **definition_fields(name, options),
    }
    definition = ScheduleDefinition(
        check_text("name", name), declared=declared, kind=kind, target=target, **fields
    )
    definition.timetable  # noqa: B018 - raises if it is invalid
    definition.policy  # noqa: B018
    return definition


def definition_fields(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as fields of a definition, with times in UTC.

    Python never treats an ambiguous local time as equal to a time of another zone.
    """
    if "input" in options and "config" in options:
        raise ArgumentError("input and config are the same field: pass one of them, not both")
    fields: dict[str, Any] = {**options}
    for field in ("input", "config"):
        if field in fields:
            fields["input"] = encode_input(name, fields.pop(field))
    for field in ("every", "grace", "jitter"):
        if fields.get(field) is not None:
            fields[field] = check_duration(field, fields[field])
    for field in ("at", "starts", "ends"):
        if fields.get(field) is not None:
            check_datetime(field, fields[field])
            fields[field] = to_utc(field, fields[field])
    if fields.get("tenant") is not None:
        check_text("tenant", fields["tenant"])
    if fields.get("queue") is not None:
        check_name("queue", fields["queue"])
    return fields


def check_duration(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise ArgumentError(f"{field} is a number of seconds or a timedelta, not {value!r:.60}")
    return to_seconds(value)


def to_utc(field: str, moment: datetime) -> datetime:
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

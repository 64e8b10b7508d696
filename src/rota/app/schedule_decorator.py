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
from rota.model.schedule_options import SCHEDULE_DEFAULTS, ScheduleOptions, check_datetime
from rota.model.settings import to_seconds
from rota.model.task import check_name

if TYPE_CHECKING:
    from rota.store.schedules import ScheduleDefinition

S = TypeVar("S", bound="Task[Any, Any] | Flow")

MAX_NAME_CHARS = 200

TIMING_FIELDS = ("cron", "every", "at")


def schedule_decorator(
    declared: dict[str, ScheduleDefinition],
    cron: str | None,
    name: str | None,
    options: ScheduleOptions,
) -> Callable[[S], S]:
    """Return a decorator that adds a schedule of its target to `declared`."""

    def declare(target: S) -> S:
        kind, target_name = describe_target(target)
        definition = define_schedule(
            name or target_name, kind, target_name, {"cron": cron, **options}, declared=True
        )
        if definition.name in declared:
            raise DefinitionError(
                f"there is a schedule called {definition.name!r} already; give this one a name of its "
                "own: @app.schedule(…, name=…)"
            )
        if isinstance(target, Task):
            _check_arguments(definition.name, target, options.get("input") or {})
        declared[definition.name] = definition
        return target

    return declare


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
    if not codec.is_storable(text, MAX_NAME_CHARS):
        raise ArgumentError(
            f"the {field} of a schedule has 1 to {MAX_NAME_CHARS} characters, without NUL or lone "
            f"surrogates, not {text!r:.60}"
        )
    return text


def encode_input(name: str, input: Mapping[str, Any] | None) -> bytes:
    return codec.encode(
        dict(input or {}), f"the input of schedule {name!r}", codec.MAX_JSON_BYTES
    ).encode()

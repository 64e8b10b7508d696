"""Checked options of a start: key, time, priority, queue, connection.

Options set again with `options(…)` replace earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from rota.errors import ArgumentError, DefinitionError
from rota.model import codec
from rota.model.retry import Retry
from rota.model.settings import Duration, to_seconds
from rota.model.task import check_name, check_priority


class FlowStartOptions(TypedDict, total=False):
    """Options of a start of a flow."""

    key: str | None
    unique: Literal["always", "open"] | Duration
    delay: Duration | None
    at: datetime | None
    expires: Duration | datetime | None
    priority: int | None
    on: Any


class TaskStartOptions(FlowStartOptions, total=False):
    """Options of a start of a task."""

    retry: Retry | None
    timeout: Duration | None
    queue: str | None


START_DEFAULTS: FlowStartOptions = {"unique": "always"}


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Checked options of a start, as they are stored."""

    queue: str | None = None
    priority: int | None = None
    key: str | None = None
    unique_for: timedelta | None = None
    unique_open: bool = False
    at: datetime | None = None
    delay: timedelta | None = None
    expires: datetime | None = None
    expires_in: timedelta | None = None
    job_options: dict[str, Any] = field(default_factory=dict)
    on: Any = None


DEFAULTS = StartOptions()


def merged(base: StartOptions, options: TaskStartOptions | FlowStartOptions) -> StartOptions:
    """Return `base` with the given options checked and replaced; None leaves an option as it is."""
    given: TaskStartOptions = {**options}
    changes = {
        **_key_changes(base, given.get("key"), given.get("unique", "always")),
        **_time_changes(given.get("delay"), given.get("at"), given.get("expires")),
    }
    if (priority := given.get("priority")) is not None:
        changes["priority"] = check_priority(priority)
    if (queue := given.get("queue")) is not None:
        changes["queue"] = check_name("queue", queue)
    if (connection := given.get("on")) is not None:
        changes["on"] = connection
    if job_options := _job_options(given.get("retry"), given.get("timeout")):
        changes["job_options"] = {**base.job_options, **job_options}
    return replace(base, **changes)


def _key_changes(
    base: StartOptions, key: str | None, unique: Literal["always", "open"] | Duration
) -> dict[str, Any]:
    if key is not None and not codec.is_storable(key, 500):
        raise ArgumentError("a key is 1 to 500 characters, without NUL or lone surrogates")
    if isinstance(unique, str) and unique not in ("always", "open"):
        raise ArgumentError(f'unique is "always", "open" or a duration, not {unique!r}')
    if unique != "always" and key is None and base.key is None:
        raise ArgumentError("options(unique=…) needs a key: pass key=…")
    if key is None and unique == "always":
        return {}
    return {
        **({} if key is None else {"key": key}),
        "unique_for": None if isinstance(unique, str) else _to_timedelta(unique),
        "unique_open": unique == "open",
    }


def _time_changes(
    delay: Duration | None, at: datetime | None, expires: Duration | datetime | None
) -> dict[str, Any]:
    if delay is not None and at is not None:
        raise ArgumentError("options(delay=…, at=…): pass one of them, not both")
    _check_time_zone("at", at)
    changes: dict[str, Any] = {}
    if at is not None or delay is not None:
        changes |= {"at": at, "delay": None if delay is None else _to_timedelta(delay)}
    if isinstance(expires, datetime):
        _check_time_zone("expires", expires)
        changes |= {"expires": expires, "expires_in": None}
    elif expires is not None:
        changes |= {"expires": None, "expires_in": _to_timedelta(expires)}
    return changes


def _job_options(retry: Retry | None, timeout: Duration | None) -> dict[str, Any]:
    """Return the options of a job that override those of its task."""
    options: dict[str, Any] = {}
    if retry is not None:
        if retry.non_retryable:
            raise ArgumentError(
                "exception types cannot be stored with a job, so options(retry=Retry(non_retryable=…))"
                " would be forgotten; set non_retryable with @app.task(retry=Retry(non_retryable=…))"
            )
        options["retry"] = retry.to_dict()
    if timeout is not None:
        if not to_seconds(timeout) > 0:
            raise DefinitionError(f"timeout must be above 0 seconds, not {timeout}")
        options["timeout"] = to_seconds(timeout)
    return options


def _to_timedelta(value: Duration) -> timedelta:
    try:
        duration = timedelta(seconds=to_seconds(value))
    except (ValueError, OverflowError, TypeError):
        raise ArgumentError(f"{value!r} is not a duration: pass seconds or a timedelta") from None
    if duration < timedelta(0):
        raise ArgumentError(f"a duration cannot be negative, it is {value}")
    return duration


def _check_time_zone(name: str, value: datetime | None) -> None:
    if value is not None and value.tzinfo is None:
        raise ArgumentError(
            f"{name}={value.isoformat()} has no time zone; use datetime.now(timezone.utc), or one "
            "with a zone of your own"
        )

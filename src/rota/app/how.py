"""What `using(…)` says about a start, checked: when, how often, where, with whose connection. What was said
before goes on to hold, unless it is said anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from rota.errors import ArgumentError, DefinitionError
from rota.model import codec
from rota.model.retry import Retry
from rota.model.settings import Duration, seconds
from rota.model.task import check_name, check_priority


@dataclass(frozen=True, slots=True)
class How:
    queue: str | None = None
    priority: int | None = None
    key: str | None = None
    unique_for: timedelta | None = None
    unique_open: bool = False
    at: datetime | None = None
    delay: timedelta | None = None
    expires: datetime | None = None
    expires_in: timedelta | None = None
    options: dict[str, Any] = field(default_factory=dict)
    on: Any = None


PLAIN = How()


def said(
    before: How,
    *,
    key: str | None,
    unique: Literal["always", "open"] | Duration,
    delay: Duration | None,
    at: datetime | None,
    expires: Duration | datetime | None,
    priority: int | None,
    on: Any,
    queue: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
) -> How:
    if delay is not None and at is not None:
        raise ArgumentError("using(delay=…, at=…): say one of them")
    _check_zone("at", at)
    if isinstance(expires, datetime):
        _check_zone("expires", expires)
    if key is not None and not _is_storable(key):
        raise ArgumentError("a key is 1 to 500 characters, without NUL or lone surrogates")
    if isinstance(unique, str) and unique not in ("always", "open"):
        raise ArgumentError(f'unique is "always", "open" or a duration, not {unique!r}')
    if unique != "always" and key is None and before.key is None:
        raise ArgumentError("using(unique=…) limits a key: say which with key=…")
    given: dict[str, Any] = {}
    if key is not None:
        given["key"] = key
    if key is not None or unique != "always":
        given["unique_for"] = None if isinstance(unique, str) else _span(unique)
        given["unique_open"] = unique == "open"
    if at is not None or delay is not None:
        given |= {"at": at, "delay": None if delay is None else _span(delay)}
    if expires is not None:
        given["expires"] = expires if isinstance(expires, datetime) else None
        given["expires_in"] = None if isinstance(expires, datetime) else _span(expires)
    if priority is not None:
        given["priority"] = check_priority(priority)
    if queue is not None:
        given["queue"] = check_name("queue", queue)
    if on is not None:
        given["on"] = on
    if own := _own(retry, timeout):
        given["options"] = {**before.options, **own}
    return replace(before, **given)


def _own(retry: Retry | None, timeout: Duration | None) -> dict[str, Any]:
    """What a job has in the place of its task's."""
    options: dict[str, Any] = {}
    if retry is not None:
        if retry.never:
            raise ArgumentError(
                "types cannot be kept with a job, so using(retry=Retry(never=…)) would be forgotten: "
                "`never` is the task's own, @app.task(retry=Retry(never=…))"
            )
        options["retry"] = retry.document()
    if timeout is not None:
        if not seconds(timeout) > 0:
            raise DefinitionError(f"timeout must be above 0 seconds, not {timeout}")
        options["timeout"] = seconds(timeout)
    return options


def _span(value: Duration) -> timedelta:
    try:
        span = timedelta(seconds=seconds(value))
    except (ValueError, OverflowError, TypeError):
        raise ArgumentError(f"{value!r} is no duration: say seconds, or a timedelta") from None
    if span < timedelta(0):
        raise ArgumentError(f"a duration cannot be negative, it is {value}")
    return span


def _is_storable(key: str) -> bool:
    return 1 <= len(key) <= 500 and "\x00" not in key and codec.storable(key) == key


def _check_zone(name: str, value: datetime | None) -> None:
    if value is not None and value.tzinfo is None:
        raise ArgumentError(
            f"{name}={value.isoformat()} has no time zone; use datetime.now(timezone.utc), or one "
            "with a zone of your own"
        )

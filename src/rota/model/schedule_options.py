"""Options of a schedule: their names and types for callers, their defaults and their checks.

This module loads neither cron nor time zones, so that an app without schedules does not pay for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, TypedDict, get_args

from rota.errors import ArgumentError
from rota.model.settings import Duration

Overlap = Literal["skip", "queue_one", "cancel_running", "allow"]
CatchUp = Literal["none", "latest", "all"]

MAX_PERIOD_SECONDS = 10 * 366 * 86400.0
"""Maximum of `every`, `grace` and `jitter`."""

MAX_TICKS = 1000
"""Maximum number of ticks that one check starts."""

MAX_COUNT = 1_000_000_000
"""Maximum of `max_runs` and `pause_after`."""


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule that code declares."""

    every: Duration | None
    at: datetime | None
    tz: str
    input: Mapping[str, Any] | None
    overlap: Overlap
    catch_up: CatchUp
    at_most: int
    grace: Duration | None
    jitter: Duration
    starts: datetime | None
    ends: datetime | None
    max_runs: int | None
    pause_after: int | None
    queue: str | None


class ScheduleChanges(ScheduleOptions, total=False):
    """Options of a schedule that is created at run time. All of them can be changed."""

    cron: str | None
    config: Mapping[str, Any] | None
    tenant: str | None


@dataclass(frozen=True, slots=True)
class SchedulePolicy:
    """Rules of a schedule for overlapping, missed and late ticks."""

    overlap: Overlap = "skip"
    """Rule for a tick that is due while a run of the schedule is open.

    The run may have been started by a tick or by hand; backfilled runs do not count. `skip` starts nothing.
    `queue_one` starts the tick when no run is open, and skips further ticks meanwhile. `cancel_running`
    cancels the open runs and starts the tick. `allow` starts the tick.
    """
    catch_up: CatchUp = "latest"
    """Rule for several ticks that are due because no worker checked in between.

    `none` starts the latest one unless it is later than a minute (or `grace`). `latest` starts the latest
    one, however late (unless `grace` is set). `all` starts the latest `at_most` ticks at once.

    These runs do not count as overlapping each other: `overlap` applies to a run that was open before. If
    such a run is open, `skip` skips all of them; `queue_one` queues the first and skips the rest. With
    `cancel_running` each run would cancel the one before, so `all` acts as `latest`.
    """
    at_most: int = 100
    """Number of ticks to catch up with, the latest ones. Older ticks are missed."""
    grace: float | None = None
    """Seconds, in addition to the jitter, after which a tick starts nothing. A tick that was queued for a
    run to end counts as in time."""
    jitter: float = 0.0
    """Maximum random delay of a tick in seconds. It may be longer than the interval: ticks are neither lost
    nor reordered."""
    starts: datetime | None = None
    """No ticks before this time. `every` is counted from it."""
    ends: datetime | None = None
    """No ticks after this time. A tick at exactly this time, and an earlier one that is queued, still
    start."""
    max_runs: int | None = None
    """Number of runs that the clock starts. Then the schedule has ended."""
    pause_after: int | None = None
    """Number of consecutive failures after which the schedule is paused until it is resumed."""

    def __post_init__(self) -> None:
        _check_choice("overlap", self.overlap, get_args(Overlap))
        _check_choice("catch_up", self.catch_up, get_args(CatchUp))
        _check_number("at_most", self.at_most, MAX_TICKS)
        if self.jitter is None:
            raise ArgumentError("jitter is a number of seconds; 0 is none")
        for name in ("grace", "jitter"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= MAX_PERIOD_SECONDS:
                raise ArgumentError(f"{name} is {value:g} s; it can be from 0 to ten years")
        for name in ("max_runs", "pause_after"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), MAX_COUNT)
        for name in ("starts", "ends"):
            if getattr(self, name) is not None:
                check_datetime(name, getattr(self, name))
        if self.starts is not None and self.ends is not None and self.ends < self.starts:
            raise ArgumentError(
                f"it ends ({self.ends.isoformat(sep=' ')}) before it starts "
                f"({self.starts.isoformat(sep=' ')})"
            )


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{name} is one of {', '.join(choices)}, not {value!r}")


def _check_number(name: str, value: object, maximum: int) -> None:
    if type(value) is not int or not 1 <= value <= maximum:
        raise ArgumentError(f"{name} is a whole number from 1 to {maximum:,}, not {value!r}")


SCHEDULE_DEFAULTS = {"tz": "UTC"} | {each.name: each.default for each in fields(SchedulePolicy)}


def check_datetime(name: str, moment: object) -> None:
    if not isinstance(moment, datetime):
        raise ArgumentError(
            f"{name} is a time, such as datetime(2027, 1, 1, tzinfo=UTC), not {moment!r:.60}"
        )
    if moment.tzinfo is None:
        raise ArgumentError(
            f"{name}={moment.isoformat(sep=' ')} has no time zone; "
            "datetime(…, tzinfo=ZoneInfo('Europe/Paris')) has one"
        )

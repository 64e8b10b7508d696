"""Timetable of a schedule: cron in a time zone, a fixed interval, or a single time.

Times are nominal: the next one follows from the previous one, never from the clock, so a late check changes
nothing. `cron` defines the behaviour where the clocks of a zone change.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

import msgspec

from rota.errors import ArgumentError
from rota.model import cron as expressions
from rota.model.schedule_options import MAX_PERIOD_SECONDS, check_datetime

MIN_PERIOD_SECONDS = 0.1
"""Minimum of `every`."""

_NON_ZONE_NAMES = ("localtime", "posixrules", "Factory", "posix", "right")
"""Entries of some time zone databases that are not zones: they differ between machines or count leap
seconds."""


class Timetable(msgspec.Struct, frozen=True):
    """Times given by one of `cron`, `every` (seconds) and `at`.

    All datetimes must have a time zone; returned ones are in UTC. `every` is counted from `anchor`, in both
    directions.
    """

    cron: str | None = None
    tz: str = "UTC"
    every: float | None = None
    at: datetime | None = None

    def __post_init__(self) -> None:
        given = [each for each in (self.cron, self.every, self.at) if each is not None]
        if len(given) != 1:
            raise ArgumentError("pass one of a cron expression, every=… and at=…")
        if not isinstance(self.tz, str):
            raise ArgumentError(f"tz is a name, such as 'Europe/Paris', not {self.tz!r}")
        load_zone(self.tz)
        if self.cron is not None:
            if not isinstance(self.cron, str):
                raise ArgumentError(
                    f"cron is an expression, such as '0 7 * * *', not {self.cron!r}"
                )
            expressions.parse(self.cron)
        if self.every is not None and not MIN_PERIOD_SECONDS <= self.every <= MAX_PERIOD_SECONDS:
            raise ArgumentError(
                f"every is {self.every:g} s; it can be {MIN_PERIOD_SECONDS:g} s to ten years; "
                "use a service for shorter periods"
            )
        if self.at is not None:
            check_datetime("at", self.at)

    def after(self, moment: datetime, anchor: datetime) -> datetime | None:
        """Return the first time after this moment; None if there is none."""
        if self.at is not None:
            return self.at.astimezone(UTC) if self.at > moment else None
        if self.every is not None:
            return self._nth_time((moment - anchor) // self._period + 1, anchor)
        return _aware(self._cron.after(_naive_utc(moment), load_zone(self.tz)))

    def latest(self, moment: datetime, anchor: datetime) -> datetime | None:
        """Return the last time up to this moment; None if there is none."""
        if self.at is not None:
            return self.at.astimezone(UTC) if self.at <= moment else None
        if self.every is not None:
            return self._nth_time((moment - anchor) // self._period, anchor)
        return _aware(self._cron.latest(_naive_utc(moment), load_zone(self.tz)))

    def count(self, begin: datetime, end: datetime, anchor: datetime) -> int:
        """Return the number of times after `begin`, up to and including `end`."""
        if end <= begin:
            return 0
        if self.at is not None:
            return int(begin < self.at <= end)
        if self.every is not None:
            return (end - anchor) // self._period - (begin - anchor) // self._period
        return self._cron.count(_naive_utc(begin), _naive_utc(end), load_zone(self.tz))

    def describe(self) -> str:
        """Return a description for people: `At 02:30 on Monday through Friday (Europe/Paris)`."""
        if self.cron is not None:
            return f"{self._cron.describe()} ({self.tz})"
        if self.every is not None:
            return f"Every {_format_period(self._period)}"
        assert self.at is not None
        return f"Once, at {self.at.isoformat(sep=' ')}"

    def __str__(self) -> str:
        if self.cron is not None:
            return f"{self.cron} ({self.tz})"
        if self.every is not None:
            return f"every {self.every:g} s"
        assert self.at is not None
        return f"at {self.at.isoformat(sep=' ')}"

    @property
    def _cron(self) -> expressions.Cron:
        assert self.cron is not None
        return expressions.parse(self.cron)

    @property
    def _period(self) -> timedelta:
        assert self.every is not None
        return timedelta(seconds=self.every)

    def _nth_time(self, number: int, anchor: datetime) -> datetime:
        # Computed from the anchor in whole microseconds, so that rounding errors do not accumulate.
        return anchor.astimezone(UTC) + number * self._period


@lru_cache(maxsize=256)
def load_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # imported late to keep `import rota` fast

    try:
        if name.split("/")[0] in _NON_ZONE_NAMES:
            raise ValueError(name)
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        if not _has_zone_database():
            raise ArgumentError(
                f"tz: {name!r} cannot be looked up, for this machine has no time zone database; "
                "`pip install tzdata` brings one"
            ) from None
        raise ArgumentError(
            f"tz: there is no time zone called {name!r}; names are like Europe/Paris or America/New_York"
        ) from None


def _has_zone_database() -> bool:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo.no_cache("Europe/Paris")
    except ZoneInfoNotFoundError:
        return False
    return True


def _naive_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)


def _aware(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)


def _format_period(period: timedelta) -> str:
    """Return `1 hour 30 minutes`; a single unit has no number: `minute`."""
    parts = []
    remaining = period
    for name, size in (
        ("day", timedelta(days=1)),
        ("hour", timedelta(hours=1)),
        ("minute", _MINUTE),
    ):
        count, remaining = divmod(remaining, size)
        if count:
            parts.append(f"{count} {name}{'s' * (count != 1)}")
    if remaining:
        seconds = remaining.total_seconds()
        parts.append(f"{seconds:g} second{'s' * (seconds != 1)}")
    return parts[0].removeprefix("1 ") if len(parts) == 1 else " ".join(parts)


_MINUTE = timedelta(minutes=1)

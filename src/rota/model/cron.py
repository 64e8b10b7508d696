"""Cron expressions: the times they match, also where the clocks of a time zone change.

The UTC offset of a zone is constant between two changes. Time is therefore handled in periods: one UTC day,
split at the changes. Within a period, the times are those that local clocks show. Two rules apply at a
change:

- A fixed time of day (`30 2 * * *`, `0 */6 * * *`) occurs once on each date that the zone has. If the
  clocks skip it, it occurs when the gap ends; if they show it twice, it occurs the first time.
- A periodic expression (every hour is listed, or the minutes begin with `*`) follows real time: quarters of
  an hour stay quarters. If it would not occur on a date at all (`*/15 2 * * *`), it occurs once, when the
  gap ends.

Only the conversion from UTC to local time is used: it has no gaps and no ambiguous times.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from rota.errors import ArgumentError

if TYPE_CHECKING:
    from cronsim import CronSim

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

FIELDS = (
    ("second", 60, "0 to 59"),
    ("minute", 60, "0 to 59"),
    ("hour", 24, "0 to 23"),
    ("day of month", 31, "1 to 31, L for the last, LW for the last from Monday to Friday"),
    ("month", 12, "1 to 12, or jan to dec"),
    ("day of week", 7, "0 to 7, or sun to sat; 5L for the last Friday, 1#2 for the second Monday"),
)
"""Name, number of values and allowed values of each field."""

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)

SEARCH_YEARS = 50
"""Range of the search for a date. A date that occurs at all recurs within forty years."""


class Cron:
    """Parsed cron expression. All datetimes passed and returned are UTC without tzinfo."""

    def __init__(self, parsed: CronSim) -> None:
        self._parsed = parsed  # used only to match dates, so its state does not change
        self._minutes = tuple(
            60 * hour + minute for hour in sorted(parsed.hours) for minute in sorted(parsed.minutes)
        )
        self._seconds = tuple(sorted(parsed.seconds))
        self._is_periodic = len(parsed.hours) == 24 or parsed.parts[1].startswith("*")

    def after(self, moment: datetime, zone: tzinfo) -> datetime | None:
        """Return the first time after this moment; None if there is none."""
        day = _midnight(moment)
        while (matching_date := self._next_date(day - DAY)) is not None:
            day = max(day, matching_date - DAY)  # UTC and local dates differ by one day at most
            for period in split_day(zone, day):
                if period.end <= moment:
                    continue
                if period.begin > moment and self._has_skipped_time(period):
                    return period.begin
                low = max(self._valid_from(period), moment + MICROSECOND + period.utc_offset)
                if (found := self._first_between(low, period.end + period.utc_offset)) is not None:
                    return found - period.utc_offset
            day += DAY
        return None

    def latest(self, moment: datetime, zone: tzinfo) -> datetime | None:
        """Return the last time up to this moment; None if there is none."""
        day = _midnight(moment)
        while (matching_date := self._previous_date(day + DAY)) is not None:
            day = min(day, matching_date + DAY)
            for period in reversed(split_day(zone, day)):
                if period.begin > moment:
                    continue
                high = min(period.end, moment + MICROSECOND) + period.utc_offset
                if (found := self._last_between(self._valid_from(period), high)) is not None:
                    return found - period.utc_offset
                if self._has_skipped_time(period):
                    return period.begin
            day -= DAY
        return None

    def count(self, begin: datetime, end: datetime, zone: tzinfo) -> int:
        """Return the number of times after `begin`, up to and including `end`."""
        total = 0
        day = _midnight(begin)
        while (matching_date := self._next_date(day - DAY)) is not None:
            day = max(day, matching_date - DAY)
            if day > end:
                break
            for period in split_day(zone, day):
                low = max(self._valid_from(period), begin + MICROSECOND + period.utc_offset)
                high = min(period.end, end + MICROSECOND) + period.utc_offset
                total += self._count_between(low, high)
                if begin < period.begin <= end and self._has_skipped_time(period):
                    local_begin = period.begin + period.utc_offset
                    total += not self._count_between(local_begin, local_begin + SECOND)
            day += DAY
        return total

    def describe(self) -> str:
        return self._parsed.explain()

    # Dates

    def _matches_date(self, date: datetime) -> bool:
        return date.month in self._parsed.months and self._parsed.match_day(date)

    def _next_date(self, date: datetime) -> datetime | None:
        """Return the first matching date from this one on."""
        last_year = min(date.year + SEARCH_YEARS, MAXYEAR - 1)
        while not self._matches_date(date):
            if date.month in self._parsed.months:
                date += DAY
            else:
                date = (date.replace(day=1) + timedelta(days=31)).replace(day=1)
            if date.year > last_year:
                return None
        return date

    def _previous_date(self, date: datetime) -> datetime | None:
        """Return the last matching date up to this one."""
        first_year = max(date.year - SEARCH_YEARS, MINYEAR + 1)
        while not self._matches_date(date):
            date = date - DAY if date.month in self._parsed.months else date.replace(day=1) - DAY
            if date.year < first_year:
                return None
        return date

    # Local times in the half-open interval [low, high)

    def _first_between(self, low: datetime, high: datetime) -> datetime | None:
        date = _midnight(low)
        while date < high:
            if (
                self._matches_date(date)
                and (index := self._index_of(low - date)) < self._times_per_day
            ):
                found = date + self._time_at(index)
                return found if found < high else None
            date += DAY
        return None

    def _last_between(self, low: datetime, high: datetime) -> datetime | None:
        date = _midnight(high)
        while date + DAY > low:
            if self._matches_date(date) and (index := self._index_of(high - date)) > 0:
                found = date + self._time_at(index - 1)
                return found if found >= low else None
            date -= DAY
        return None

    def _count_between(self, low: datetime, high: datetime) -> int:
        total = 0
        date = _midnight(low)
        while date < high:
            if self._matches_date(date):
                total += self._index_of(high - date) - self._index_of(low - date)
            date += DAY
        return max(total, 0)

    @property
    def _times_per_day(self) -> int:
        return len(self._minutes) * len(self._seconds)

    def _index_of(self, time: timedelta) -> int:
        """Return how many of a date's times are before this one."""
        if time >= DAY:
            return self._times_per_day
        if time <= timedelta(0):
            return 0
        minute, second = divmod(-(-time // SECOND), 60)
        index = bisect_left(self._minutes, minute)
        is_exact_minute = index < len(self._minutes) and self._minutes[index] == minute
        return index * len(self._seconds) + (
            bisect_left(self._seconds, second) if is_exact_minute else 0
        )

    def _time_at(self, index: int) -> timedelta:
        minute, second = divmod(index, len(self._seconds))
        return timedelta(minutes=self._minutes[minute], seconds=self._seconds[second])

    # Clock changes

    def _valid_from(self, period: OffsetPeriod) -> datetime:
        """Return the local time from which matches in this period count."""
        local_begin = period.begin + period.utc_offset
        return local_begin if self._is_periodic else max(local_begin, period.shown_until)

    def _has_skipped_time(self, period: OffsetPeriod) -> bool:
        """True if a time that the clocks skipped at the beginning of this period occurs there."""
        if period.shown_until >= (local_begin := period.begin + period.utc_offset):
            return False
        date = _midnight(period.shown_until)
        while date < local_begin:
            low, high = max(period.shown_until, date), min(local_begin, date + DAY)
            # If the zone skips the whole date, it has no times.
            if high - low < DAY and self._matches_date(date):
                skipped = self._count_between(low, high)
                if skipped and (not self._is_periodic or skipped == self._times_per_day):
                    return True
            date += DAY
        return False


class OffsetPeriod(msgspec.Struct, frozen=True):
    """UTC day, or part of one, in which the UTC offset of a zone is constant."""

    begin: datetime
    end: datetime
    utc_offset: timedelta
    shown_until: datetime
    """Local time up to which clocks have been before this period.

    Later than the local time at `begin`: the clocks went back. Earlier: they skipped the time in between.
    """


@lru_cache(maxsize=2048)
def split_day(zone: tzinfo, day: datetime) -> tuple[OffsetPeriod, ...]:
    """Return the periods of a UTC day. A zone changes its clocks once a week at most."""
    end = day + DAY
    previous_offset, begin_offset, end_offset = (
        _utc_offset(zone, each - MICROSECOND) for each in (day - DAY, day, end)
    )
    shown_until = day + begin_offset
    if previous_offset > begin_offset:
        # The clocks went back on the day before and may not have passed the repeated time yet.
        shown_until = max(shown_until, _find_change(zone, day - DAY, day) + previous_offset)
    if begin_offset == end_offset:
        return (OffsetPeriod(day, end, begin_offset, shown_until),)
    change = _find_change(zone, day, end)
    after_change = OffsetPeriod(change, end, end_offset, max(shown_until, change + begin_offset))
    return (
        (after_change,)
        if change == day
        else (OffsetPeriod(day, change, begin_offset, shown_until), after_change)
    )


def _find_change(zone: tzinfo, begin: datetime, end: datetime) -> datetime:
    """Return the time of the clock change in this interval, which contains one."""
    offset = _utc_offset(zone, begin - MICROSECOND)
    seconds = range(int((end - begin) / SECOND))
    index = bisect_right(
        seconds, False, key=lambda each: _utc_offset(zone, begin + each * SECOND) != offset
    )
    return begin + index * SECOND


def _utc_offset(zone: tzinfo, moment: datetime) -> timedelta:
    offset = moment.replace(tzinfo=UTC).astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


# Parsing


@lru_cache(maxsize=1024)
def parse(expression: str) -> Cron:
    """Return the parsed expression. Raise ArgumentError, with the field, if it is
    invalid or never matches."""
    from cronsim import CronSim, CronSimError  # imported late to keep `import rota` fast

    subject = f"cron: {expression!r:.100}"
    expanded = ALIASES.get(expression.strip().lower(), expression)
    if expanded.lstrip().startswith("@"):
        raise ArgumentError(f"{subject} is not known; there are {', '.join(ALIASES)}")
    parts = expanded.split()
    if len(parts) not in (5, 6):
        raise ArgumentError(
            f"{subject} has {len(parts)} field{'s' * (len(parts) != 1)}, and five are needed: minute, "
            "hour, day of month, month and day of week; or six, with second before them"
        )
    problems = [_find_problem(number, part) for number, part in enumerate(parts, 6 - len(parts))]
    if any(problems):
        raise ArgumentError(f"{subject} cannot be read: {'; '.join(filter(None, problems))}")
    try:
        found = Cron(CronSim(expanded, _REFERENCE_DATE))
    except CronSimError:
        found = None
    # The years 2000 to 2027 contain every kind of year: leap or not, starting on each day of the week.
    if found is None or found._next_date(_REFERENCE_DATE) is None:
        raise ArgumentError(
            f"{subject} never comes: no year has such a date; look at day of month, month and day of week"
        )
    return found


def _find_problem(number: int, part: str) -> str | None:
    """Return the problem of a field; None if it is valid."""
    name, value_count, values = FIELDS[number]
    steps = [int(step or 0) for step in re.findall(r"/(\d{0,9})", part)]
    if 0 in steps:
        return f"{part!r:.60} is no {name}: a step is at least 1"
    if _is_valid(number, part):
        too_large = [step for step in steps if step > value_count]
        if not too_large:
            return None
        # Such a step matches only the first value: `*/90` is not every 90 minutes.
        return (
            f"{part!r:.60} is no {name}: a step of {too_large[0]} leads out of its {value_count} values; "
            "every=… takes any length"
        )
    hint = ""
    if (found := re.fullmatch(r"(\w+)-(\w+)", part)) and _is_valid(
        number, f"{found[2]}-{found[1]}"
    ):
        hint = ": a range goes up" + (", Friday to Sunday is 5-7" if number == 5 else "")
    return f"{part!r:.60} is no {name} ({values}){hint}"


def _is_valid(number: int, part: str) -> bool:
    from cronsim import CronSim, CronSimError

    fields = ["*"] * 6
    fields[number] = part
    try:
        CronSim(" ".join(fields), _REFERENCE_DATE)
    except (CronSimError, ValueError):  # ValueError: a number with too many digits
        return False
    return True


_REFERENCE_DATE = datetime(2000, 1, 1)  # noqa: DTZ001 - a date without a zone

"""Cron expressions: the times they name, and what becomes of those where the clocks of a zone change.

A zone's clocks run evenly between two changes, so time is taken in stretches: a day of UTC, cut where they
change. Within one, the times are those that the clocks show. At its edges two rules decide:

- a time of day (`30 2 * * *`, `0 */6 * * *`) comes once on each date that the zone has. Left out, it comes
  as the gap ends; shown twice, it comes the first time;
- what goes on through the hours (every hour is named, or the minutes begin with `*`) goes by real time:
  quarters of an hour stay quarters. Were it to lose a date altogether (`*/15 2 * * *`), it comes once, as
  the gap ends.

Only the way from UTC to local time is ever asked for: that one has no gaps, and nothing twice.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING

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
"""What each is called, how many values it has, and which."""

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
MOMENT = timedelta(microseconds=1)

YEARS = 50
"""How far to look for a date: one that comes at all comes within forty years of any other."""


class Cron:
    """An expression, read. Moments go in and come out in UTC, without saying so."""

    def __init__(self, parsed: CronSim) -> None:
        self._parsed = parsed  # asked of dates alone: that does not move it
        self._minutes = tuple(
            60 * hour + minute for hour in sorted(parsed.hours) for minute in sorted(parsed.minutes)
        )
        self._seconds = tuple(sorted(parsed.seconds))
        self._through = len(parsed.hours) == 24 or parsed.parts[1].startswith("*")

    def after(self, moment: datetime, where: tzinfo) -> datetime | None:
        """The first time after this moment."""
        day = _midnight(moment)
        while (named := self._date_from(day - DAY)) is not None:
            day = max(day, named - DAY)  # UTC's date and a zone's are never further apart
            for each in stretches(where, day):
                if each.end <= moment:
                    continue
                if each.begin > moment and self._put_off(each):
                    return each.begin
                low = max(self._fresh(each), moment + MOMENT + each.ahead)
                if (found := self._first(low, each.end + each.ahead)) is not None:
                    return found - each.ahead
            day += DAY
        return None

    def latest(self, moment: datetime, where: tzinfo) -> datetime | None:
        """The last time up to this moment."""
        day = _midnight(moment)
        while (named := self._date_until(day + DAY)) is not None:
            day = min(day, named + DAY)
            for each in reversed(stretches(where, day)):
                if each.begin > moment:
                    continue
                high = min(each.end, moment + MOMENT) + each.ahead
                if (found := self._last(self._fresh(each), high)) is not None:
                    return found - each.ahead
                if self._put_off(each):
                    return each.begin
            day -= DAY
        return None

    def count(self, begin: datetime, end: datetime, where: tzinfo) -> int:
        """How many there are after one moment, up to another."""
        many = 0
        day = _midnight(begin)
        while (named := self._date_from(day - DAY)) is not None:
            day = max(day, named - DAY)
            if day > end:
                break
            for each in stretches(where, day):
                low = max(self._fresh(each), begin + MOMENT + each.ahead)
                high = min(each.end, end + MOMENT) + each.ahead
                many += self._many(low, high)
                if begin < each.begin <= end and self._put_off(each):
                    starts = each.begin + each.ahead
                    many += not self._many(starts, starts + SECOND)
            day += DAY
        return many

    def words(self) -> str:
        return self._parsed.explain()

    # Dates

    def _on(self, date: datetime) -> bool:
        return date.month in self._parsed.months and self._parsed.match_day(date)

    def _date_from(self, date: datetime) -> datetime | None:
        """The first date that is named, from this one on."""
        last = min(date.year + YEARS, MAXYEAR - 1)
        while not self._on(date):
            if date.month in self._parsed.months:
                date += DAY
            else:
                date = (date.replace(day=1) + timedelta(days=31)).replace(day=1)
            if date.year > last:
                return None
        return date

    def _date_until(self, date: datetime) -> datetime | None:
        """The last date that is named, up to this one."""
        last = max(date.year - YEARS, MINYEAR + 1)
        while not self._on(date):
            date = date - DAY if date.month in self._parsed.months else date.replace(day=1) - DAY
            if date.year < last:
                return None
        return date

    # Times that clocks show, from one until before another

    def _first(self, low: datetime, high: datetime) -> datetime | None:
        date = _midnight(low)
        while date < high:
            if self._on(date) and (rank := self._rank(low - date)) < self._daily:
                found = date + self._time(rank)
                return found if found < high else None
            date += DAY
        return None

    def _last(self, low: datetime, high: datetime) -> datetime | None:
        date = _midnight(high)
        while date + DAY > low:
            if self._on(date) and (rank := self._rank(high - date)) > 0:
                found = date + self._time(rank - 1)
                return found if found >= low else None
            date -= DAY
        return None

    def _many(self, low: datetime, high: datetime) -> int:
        many = 0
        date = _midnight(low)
        while date < high:
            if self._on(date):
                many += self._rank(high - date) - self._rank(low - date)
            date += DAY
        return max(many, 0)

    @property
    def _daily(self) -> int:
        return len(self._minutes) * len(self._seconds)

    def _rank(self, time: timedelta) -> int:
        """How many of a date's times come before this one."""
        if time >= DAY:
            return self._daily
        if time <= timedelta(0):
            return 0
        minute, second = divmod(-(-time // SECOND), 60)
        at = bisect_left(self._minutes, minute)
        within = at < len(self._minutes) and self._minutes[at] == minute
        return at * len(self._seconds) + (bisect_left(self._seconds, second) if within else 0)

    def _time(self, rank: int) -> timedelta:
        minute, second = divmod(rank, len(self._seconds))
        return timedelta(minutes=self._minutes[minute], seconds=self._seconds[second])

    # Where clocks change

    def _fresh(self, stretch: Stretch) -> datetime:
        """From when on what the clocks show counts."""
        shows = stretch.begin + stretch.ahead
        return shows if self._through else max(shows, stretch.shown)

    def _put_off(self, stretch: Stretch) -> bool:
        """Whether a time that the clocks left out as this began comes now."""
        if stretch.shown >= (shows := stretch.begin + stretch.ahead):
            return False
        date = _midnight(stretch.shown)
        while date < shows:
            low, high = max(stretch.shown, date), min(shows, date + DAY)
            # Where the whole date is left out, there is nothing to come.
            if high - low < DAY and self._on(date):
                lost = self._many(low, high)
                if lost and (not self._through or lost == self._daily):
                    return True
            date += DAY
        return False


@dataclass(frozen=True, slots=True)
class Stretch:
    """A day of UTC, or the part of one, through which the clocks of a zone run evenly."""

    begin: datetime
    end: datetime
    ahead: timedelta
    """… of UTC."""
    shown: datetime
    """The clocks have shown what is before this. More than they show as it begins: they went back. Less:
    they left out what is in between."""


@lru_cache(maxsize=2048)
def stretches(where: tzinfo, day: datetime) -> tuple[Stretch, ...]:
    """A day of UTC. Clocks change once a week, at most."""
    end = day + DAY
    eve, before, after = (_ahead(where, each - MOMENT) for each in (day - DAY, day, end))
    shown = day + before
    if eve > before:
        # They went back the day before, and may not have come to what they had not shown.
        shown = max(shown, _change(where, day - DAY, day) + eve)
    if before == after:
        return (Stretch(day, end, before, shown),)
    change = _change(where, day, end)
    rest = Stretch(change, end, after, max(shown, change + before))
    return (rest,) if change == day else (Stretch(day, change, before, shown), rest)


def _change(where: tzinfo, begin: datetime, end: datetime) -> datetime:
    """When the clocks change in this time, which they do."""
    before = _ahead(where, begin - MOMENT)
    seconds = range(int((end - begin) / SECOND))
    at = bisect_right(
        seconds, False, key=lambda each: _ahead(where, begin + each * SECOND) != before
    )
    return begin + at * SECOND


def _ahead(where: tzinfo, moment: datetime) -> timedelta:
    ahead = moment.replace(tzinfo=UTC).astimezone(where).utcoffset()
    assert ahead is not None
    return ahead


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


# Reading


@lru_cache(maxsize=1024)
def read(cron: str) -> Cron:
    """Refuses what cannot be read and what never comes, and says which field it is."""
    from cronsim import CronSim, CronSimError  # `import rota` can do without

    called = f"cron: {cron!r:.100}"
    written = ALIASES.get(cron.strip().lower(), cron)
    if written.lstrip().startswith("@"):
        raise ArgumentError(f"{called} is not known; there are {', '.join(ALIASES)}")
    parts = written.split()
    if len(parts) not in (5, 6):
        raise ArgumentError(
            f"{called} has {len(parts)} field{'s' * (len(parts) != 1)}, and five are needed: minute, hour, "
            "day of month, month and day of week; or six, with second before them"
        )
    faults = [_fault(number, part) for number, part in enumerate(parts, 6 - len(parts))]
    if any(faults):
        raise ArgumentError(f"{called} cannot be read: {'; '.join(filter(None, faults))}")
    try:
        found = Cron(CronSim(written, _SOME_DATE))
    except CronSimError:
        found = None
    # Every kind of year, leap or not and from whichever day of the week, is among those of 2000 to 2027.
    if found is None or found._date_from(_SOME_DATE) is None:
        raise ArgumentError(
            f"{called} never comes: no year has such a date; look at day of month, month and day of week"
        )
    return found


def _fault(number: int, part: str) -> str | None:
    """What is wrong with a field, if something is."""
    name, many, values = FIELDS[number]
    steps = [int(step or 0) for step in re.findall(r"/(\d{0,9})", part)]
    if 0 in steps:
        return f"{part!r:.60} is no {name}: a step is at least 1"
    if _reads(number, part):
        wide = [step for step in steps if step > many]
        if not wide:
            return None
        # It would come to nothing: `*/90` is not every 90 minutes.
        return (
            f"{part!r:.60} is no {name}: a step of {wide[0]} leads out of its {many} values; every=… takes "
            "any length"
        )
    hint = ""
    if (found := re.fullmatch(r"(\w+)-(\w+)", part)) and _reads(number, f"{found[2]}-{found[1]}"):
        hint = ": a range goes up" + (", Friday to Sunday is 5-7" if number == 5 else "")
    return f"{part!r:.60} is no {name} ({values}){hint}"


def _reads(number: int, part: str) -> bool:
    from cronsim import CronSim, CronSimError

    alone = ["*"] * 6
    alone[number] = part
    try:
        CronSim(" ".join(alone), _SOME_DATE)
    except (CronSimError, ValueError):  # the latter where a number is too long for one
        return False
    return True


_SOME_DATE = datetime(2000, 1, 1)  # noqa: DTZ001 - a date, of no zone

"""Cron where clocks change: every zone of the tz database, every change from 2000 to 2040.

The expected times are computed independently, minute by minute, from the local times and the times that
an expression names. They are compared forwards, backwards, by count, and from moments in between.

`make test` covers one change of every kind in unusual zones, and a few changes of random zones;
ROTA_TEST_LONG=1 covers all of them.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import accumulate, pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim

from rota.model.timetable import Timetable
from support.scale import scale
from support.timetables import upcoming

SHARES = scale(1, 8)

ODD = {
    "Africa/Cairo": "at midnight, and on a Friday",
    "Africa/Casablanca": "back for Ramadan",
    "America/Havana": "at midnight, back from one o'clock",
    "America/New_York": "",
    "America/Sao_Paulo": "gap at midnight; back to the day before",
    "America/St_Johns": "at one minute past midnight",
    "Antarctica/Casey": "three hours",
    "Antarctica/Troll": "two hours",
    "Asia/Dhaka": "gap up to midnight",
    "Asia/Gaza": "now and then",
    "Asia/Pyongyang": "half an hour, for good",
    "Atlantic/Azores": "at midnight of UTC",
    "Australia/Lord_Howe": "half an hour",
    "Europe/Berlin": "",
    "Pacific/Apia": "a date left out",
    "Pacific/Chatham": "three quarters past",
    "Pacific/Fakaofo": "a date left out",
    "UTC": "never",
}

MINUTE = timedelta(minutes=1)
BEFORE, AFTER = -26 * 60, 26 * 60
"""The tested period around a change, in minutes."""


@dataclass(frozen=True)
class Change:
    zone: str
    at: datetime
    before: timedelta
    after: timedelta

    @property
    def kind(self) -> object:
        return self.before, self.after, (self.at + self.before).time()


def offset_at(zone: ZoneInfo, moment: datetime) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def changes(name: str, step: timedelta = timedelta(days=6)) -> list[Change]:
    """Return a zone's changes. Two are at least a week less an hour apart, as `histories` asserts."""
    zone, found = ZoneInfo(name), []
    at, end = datetime(2000, 1, 1, tzinfo=UTC), datetime(2041, 1, 1, tzinfo=UTC)
    before = offset_at(zone, at)
    while at < end:
        low, high = at, at + step
        at = high
        after = offset_at(zone, high)
        if after == before:
            continue
        while high - low > timedelta(seconds=1):
            middle = low + (high - low) // 2
            low, high = (middle, high) if offset_at(zone, middle) == before else (low, middle)
        found.append(Change(name, high.replace(microsecond=0), before, after))
        before = after
    return found


class Clocks:
    """Local times of a zone around a change, minute by minute."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.margin = 24 * 60
        self.begin = change.at + (BEFORE - self.margin) * MINUTE
        many = AFTER - BEFORE + 2 * self.margin
        until = self.margin - BEFORE
        base = self.begin.replace(tzinfo=None)
        self.base = base
        early, late = (each // MINUTE for each in (change.before, change.after))
        assert early * MINUTE == change.before
        assert late * MINUTE == change.after
        self.shows = [at + (early if at < until else late) for at in range(many)]
        self.highest = list(accumulate(self.shows, max))
        self.dates = {self.date(minute) for minute in self.shows}

    def date(self, shown: int) -> date:
        return (self.base + shown * MINUTE).date()

    def moment(self, minute: int) -> datetime:
        return self.begin + minute * MINUTE

    def first_past(self, shown: int) -> int:
        return bisect_left(self.highest, shown)

    def expected(self, cron: str, through: bool) -> list[datetime]:
        """Return the times at which the expression is due by the rules."""
        last = self.base + max(self.shows) * MINUTE
        named: list[int] = []
        for wall in CronSim(cron, self.base + timedelta(hours=12)):
            if wall > last:
                break
            named.append((wall - self.base) // MINUTE)
        if not through:
            found = {self.first_past(each) for each in named if self.date(each) in self.dates}
        else:
            wanted = set(named)
            found = {at for at, shown in enumerate(self.shows) if shown in wanted}
            seen = {self.date(self.shows[at]) for at in found}
            for each in reversed(named):
                if self.date(each) in self.dates - seen:
                    found.add(self.first_past(each))
        low, high = self.change.at + BEFORE * MINUTE, self.change.at + AFTER * MINUTE
        return [at for each in sorted(found) if low < (at := self.moment(each)) <= high]


def expressions(change: Change) -> Iterator[tuple[str, bool]]:
    """Yield expressions to test, each with True if it repeats within the hours."""
    gap = [change.at.replace(tzinfo=None) + each for each in (change.before, change.after)]
    middle = gap[0] + (gap[1] - gap[0]) / 2
    for wall in {*gap, middle, gap[0] - MINUTE, gap[1] - MINUTE, gap[1] + MINUTE}:
        yield f"{wall.minute} {wall.hour} * * *", False
    yield f"{middle.minute} {middle.hour} {middle.day} {middle.month} *", False
    yield f"{middle.minute} {middle.hour} * * {middle.isoweekday()}", False
    yield f"0 {middle.minute} {middle.hour} * * *", False
    yield "0 0 * * *", False
    yield "30 23 * * *", False
    yield "0,30 0-4 * * *", False
    yield "0 */2 * * *", False
    yield "*/15 * * * *", True
    yield "0-59/20 0-23 * * *", True
    yield "7 * * * *", True
    yield f"*/15 {middle.hour} * * *", True
    yield f"*/15 {min(gap).hour},{max(gap).hour} {middle.day} * *", True
    yield f"*/30 * * * {middle.isoweekday()}", True


def check(clocks: Clocks, cron: str, through: bool, chance: random.Random) -> None:
    change = clocks.change
    timetable = Timetable(cron, change.zone)
    low, high = change.at + BEFORE * MINUTE, change.at + AFTER * MINUTE
    expected = clocks.expected(cron, through)
    told = f"{cron!r} in {change.zone} around {change.at:%Y-%m-%d %H:%M}"

    found, at = [], low
    while (at := timetable.after(at, low) or high + MINUTE) <= high:
        found.append(at)
        assert len(found) <= len(expected), told
    assert found == expected, told
    assert all(a < b for a, b in pairwise(found)), told

    found, at = [], high
    while (at := timetable.latest(at, low) or low) > low:
        found.append(at)
        at -= timedelta(microseconds=1)
    assert found[::-1] == expected, told
    assert timetable.count(low, high, low) == len(expected), told

    near = [change.at + timedelta(seconds=each) for each in (-3600, -1, 0, 1, 3599, 3600, 7200)]
    for moment in [*near, *(low + (high - low) * chance.random() for _ in range(5))]:
        place = bisect_right(expected, moment)
        assert timetable.after(moment, low) == first(expected[place:], timetable, high), told
        assert timetable.latest(moment, low) == first(expected[:place][::-1], timetable, low, -1), (
            told
        )
        assert timetable.count(low, moment, low) == place, told
        assert timetable.count(moment, high, low) == len(expected) - place, told


def first(
    found: list[datetime], timetable: Timetable, edge: datetime, way: int = 1
) -> datetime | None:
    """Return the first expected time, or the timetable's next one beyond the computed period."""
    if found:
        return found[0]
    return timetable.after(edge, edge) if way > 0 else timetable.latest(edge, edge)


def check_days(change: Change) -> None:
    """Assert one tick on each date that the zone has, without the computed times."""
    zone = ZoneInfo(change.zone)
    middle = change.at.replace(tzinfo=None) + (change.before + change.after) / 2
    timetable = Timetable(f"{middle.minute} {middle.hour} * * *", change.zone)
    for begin in (change.at - timedelta(days=3), change.at + timedelta(days=3)):
        # A day or more from the change, the local time is the named one.
        at = timetable.after(begin, begin)
        assert at is not None
        assert (at.astimezone(zone).hour, at.astimezone(zone).minute) == (
            middle.hour,
            middle.minute,
        )
    days = timetable.count(change.at - timedelta(days=3), change.at + timedelta(days=3), change.at)
    lost = {(change.at + each).date() for each in (change.before, change.after)}
    a_date_was_left_out = max(lost) - min(lost) > timedelta(days=1) or (
        change.after - change.before >= timedelta(days=1)
    )
    longer = change.at.replace(tzinfo=None) + timedelta(days=3) + change.after
    shorter = change.at.replace(tzinfo=None) - timedelta(days=3) + change.before
    nominal = sum(
        shorter < datetime.combine(shorter.date() + timedelta(days=each), middle.time()) <= longer
        for each in range(9)
    )
    assert days == nominal - a_date_was_left_out, change


def check_quarters(change: Change) -> None:
    """Assert ticks 15 real minutes apart: all offsets of these years are whole quarters of an hour."""
    timetable = Timetable("*/15 * * * *", change.zone)
    at = timetable.after(change.at - timedelta(hours=5), change.at)
    for _ in range(40):
        assert at is not None
        following = timetable.after(at, change.at)
        assert following == at + timedelta(minutes=15), change
        at = following


def check_change(change: Change, chance: random.Random) -> None:
    clocks = Clocks(change)
    for cron, through in expressions(change):
        check(clocks, cron, through, chance)
    check_days(change)
    check_quarters(change)


def sample(name: str) -> list[Change]:
    found = changes(name)
    return scale(list({each.kind: each for each in found}.values()), found)


@pytest.mark.timeout(scale(60, 3600))
@pytest.mark.parametrize("name", ODD)
def test_cron_clock_changes_of_unusual_zones_follow_the_rules(name: str) -> None:
    chance = random.Random(name)
    for change in sample(name):
        check_change(change, chance)


LONG_AGO = [
    Change(
        "Pacific/Kwajalein",  # 30 September twice
        datetime(1969, 9, 30, 13, tzinfo=UTC),
        timedelta(hours=11),
        timedelta(hours=-12),
    ),
    Change(
        "Pacific/Kwajalein",  # no 21 August
        datetime(1993, 8, 21, 12, tzinfo=UTC),
        timedelta(hours=-12),
        timedelta(hours=12),
    ),
    Change(
        "Asia/Kathmandu",  # a permanent change by 15 minutes
        datetime(1985, 12, 31, 18, 30, tzinfo=UTC),
        timedelta(hours=5, minutes=30),
        timedelta(hours=5, minutes=45),
    ),
]


@pytest.mark.parametrize("change", LONG_AGO, ids=str)
def test_cron_historic_clock_changes_follow_the_rules(change: Change) -> None:
    assert offset_at(ZoneInfo(change.zone), change.at - timedelta(seconds=1)) == change.before
    assert offset_at(ZoneInfo(change.zone), change.at) == change.after
    clocks = Clocks(change)

    for cron, through in expressions(change):
        check(clocks, cron, through, random.Random(cron))


def test_cron_quarters_follow_local_time_with_offset_in_seconds() -> None:
    """Not all intervals are 15 real minutes: the change skipped 44.5 minutes."""
    zone, change = ZoneInfo("Africa/Monrovia"), datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)
    begin = change - timedelta(hours=2)
    moments = [begin + timedelta(seconds=each) for each in range(1, 4 * 3600 + 1)]
    shown = [each.astimezone(zone) for each in moments]
    expected = [
        moment
        for moment, shows in zip(moments, shown, strict=True)
        if shows.minute % 15 == 0 and shows.second == 0
    ]
    timetable = Timetable("*/15 * * * *", "Africa/Monrovia")

    assert offset_at(zone, begin) == -timedelta(minutes=44, seconds=30)
    assert upcoming(timetable, begin, begin, len(expected)) == expected
    assert [timetable.latest(each, begin) for each in expected] == expected
    assert {b - a for a, b in pairwise(expected)} == {
        *(timedelta(minutes=15), timedelta(minutes=15, seconds=30))
    }


@cache
def distinct_zone_changes() -> list[list[Change]]:
    """Return the changes of every zone, without duplicates of zones with the same changes."""
    found: dict[object, list[Change]] = {}
    zones = sorted(available_timezones())
    for name in scale(random.Random(4).sample(zones, 10), zones):
        those = changes(name, timedelta(days=1))
        assert all(b.at - a.at > timedelta(days=6) for a, b in pairwise(those)), name
        found.setdefault(tuple((each.at, each.before, each.after) for each in those), those)
    return list(found.values())


@pytest.mark.timeout(scale(60, 7200))
@pytest.mark.parametrize("share", range(SHARES))
def test_cron_clock_changes_of_all_zones_follow_the_rules(share: int) -> None:
    chance = random.Random(share)
    for history in distinct_zone_changes()[share::SHARES]:
        for change in scale(history[-1:], history):
            check_change(change, chance)

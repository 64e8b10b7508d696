"""Timetables: valid expressions, refused expressions and their errors, and the resulting times."""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import Any

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from rota.errors import ArgumentError
from rota.model import timetable as module
from rota.model.timetable import Timetable
from support.executed_lines import count_lines
from support.timetables import upcoming

ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# Cron


@pytest.mark.parametrize(
    ("cron", "since", "expected"),
    [
        ("@hourly", "2026-02-28 22:30", "2026-02-28 23:00, 2026-03-01 00:00"),
        ("@daily", "2026-02-28 22:30", "2026-03-01 00:00, 2026-03-02 00:00"),
        ("@midnight", "2026-02-28 22:30", "2026-03-01 00:00, 2026-03-02 00:00"),
        (" @Weekly ", "2026-02-28 22:30", "2026-03-01 00:00, 2026-03-08 00:00"),
        ("@monthly", "2026-02-28 22:30", "2026-03-01 00:00, 2026-04-01 00:00"),
        ("@yearly", "2026-02-28 22:30", "2027-01-01 00:00, 2028-01-01 00:00"),
        ("@annually", "2026-02-28 22:30", "2027-01-01 00:00, 2028-01-01 00:00"),
        ("30 2 * * mon-fri", "2026-11-13 00:00", "2026-11-13 02:30, 2026-11-16 02:30"),
        ("0 9 * jan,Jul SUN", "2026-01-20 00:00", "2026-01-25 09:00, 2026-07-05 09:00"),
        ("5,10 1,2 * * *", "2026-01-01 01:05", "2026-01-01 01:10, 2026-01-01 02:05"),
        ("10-40/15 3 * * *", "2026-01-01 03:10", "2026-01-01 03:25, 2026-01-01 03:40"),
        ("50/5 3 * * *", "2026-01-01 03:50", "2026-01-01 03:55, 2026-01-02 03:50"),
        ("0 0 * * 7", "2026-01-01 00:00", "2026-01-04 00:00, 2026-01-11 00:00"),
        ("0 0 * * fri-7", "2026-01-01 00:00", "2026-01-02 00:00, 2026-01-03 00:00"),
        # Day of month and day of week: one of them must match, or both if one begins with a star.
        ("0 0 13 * fri", "2026-01-01 00:00", "2026-01-02 00:00, 2026-01-09 00:00"),
        ("0 0 */13 * fri", "2026-01-01 00:00", "2026-02-27 00:00, 2026-03-27 00:00"),
        ("0 0 29 2 *", "2024-02-29 00:00", "2028-02-29 00:00, 2032-02-29 00:00"),
        ("0 0 29 feb *", "2096-02-29 00:00", "2104-02-29 00:00, 2108-02-29 00:00"),
        ("0 0 * 2 1#5", "2044-02-29 00:00", "2072-02-29 00:00, 2112-02-29 00:00"),
        ("0 0 L * *", "2026-01-31 00:00", "2026-02-28 00:00, 2026-03-31 00:00"),
        ("0 0 LW * *", "2026-01-30 00:00", "2026-02-27 00:00, 2026-03-31 00:00"),
        ("0 0 1,L * *", "2026-02-01 00:00", "2026-02-28 00:00, 2026-03-01 00:00"),
        ("0 0 * * 1#2", "2026-01-12 00:00", "2026-02-09 00:00, 2026-03-09 00:00"),
        ("0 0 * * 5L", "2026-01-30 00:00", "2026-02-27 00:00, 2026-03-27 00:00"),
        ("*/20 59 23 31 12 *", "2026-01-01 00:00", "2026-12-31 23:59:00, 2026-12-31 23:59:20"),
        ("30 0 7 * * *", "2026-01-01 07:00:30", "2026-01-02 07:00:30, 2026-01-03 07:00:30"),
    ],
)
def test_cron_supported_expressions_give_expected_times(
    cron: str, since: str, expected: str
) -> None:
    found = upcoming(Timetable(cron), at(since), ANCHOR, 2)

    assert found == [at(each) for each in expected.split(", ")]


@pytest.mark.parametrize(
    ("cron", "told"),
    [
        ("60 2 * * *", "'60' is no minute (0 to 59)"),
        ("0 24 * * *", "'24' is no hour (0 to 23)"),
        ("0 0 0 * *", "'0' is no day of month (1 to 31, L for the last"),
        ("0 0 32 * *", "'32' is no day of month"),
        ("0 0 * 13 *", "'13' is no month (1 to 12, or jan to dec)"),
        ("0 0 * foo *", "'foo' is no month"),
        ("0 0 * * 8", "'8' is no day of week (0 to 7, or sun to sat"),
        ("0 0 * * 1#6", "'1#6' is no day of week"),
        ("0 0 * * L", "'L' is no day of week"),
        ("0 0 15W * *", "'15W' is no day of month"),
        ("60 0 0 * * *", "'60' is no second (0 to 59)"),
        ("x 25 * * *", "'x' is no minute (0 to 59); '25' is no hour (0 to 23)"),
        ("a b c d e f", "'a' is no second"),
        ("a b c d e f", "'f' is no day of week"),
        ("1,,2 * * * *", "'1,,2' is no minute"),
        ("-5 * * * *", "'-5' is no minute"),
        ("1/ * * * *", "a step is at least 1"),
        ("*/0 * * * *", "'*/0' is no minute: a step is at least 1"),
        ("*/90 * * * *", "a step of 90 leads out of its 60 values; every=… takes any length"),
        ("5-1 * * * *", "'5-1' is no minute (0 to 59): a range goes up"),
        ("0 0 * * fri-sun", "a range goes up, Friday to Sunday is 5-7"),
        ("9" * 5000 + " * * * *", "is no minute"),
        ("* * * *", "has 4 fields, and five are needed: minute, hour, day of month, month and day"),
        ("0 0 1 1 * 2026 *", "has 7 fields"),
        ("", "has 0 fields"),
        ("@reboot", "'@reboot' is not known; there are @hourly, @daily"),
        (7, "cron is an expression, such as '0 7 * * *', not 7"),
    ],
)
def test_cron_invalid_expression_is_refused_with_its_field(cron: Any, told: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Timetable(cron)

    assert told in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "cron",
    [
        "0 0 30 2 *",
        "0 0 30,31 feb *",
        "0 0 31 4,6,9,11 *",
        "0 0 LW * */7",  # the last working day, if it is a Sunday
        "0 0 LW * */6",
        "0 0 */31 * 1#2",  # the first, if it is the second Monday
    ],
)
def test_cron_date_that_never_occurs_is_refused(cron: str) -> None:
    def refused() -> None:
        with pytest.raises(ArgumentError, match="never comes: no year has such a date"):
            Timetable(cron)

    assert count_lines(refused) < 300_000


def test_cron_rarest_dates_occur_within_40_years() -> None:
    """This is why the search stops after 50 years. The test covers every kind of date in all 400 years of
    the calendar's cycle."""
    for cron in ("0 0 29 2 */7", "0 0 * 2 1#5", "0 0 29 2 *", "0 0 */31 1 2"):
        named = [
            day.year
            for year in range(2000, 2440)
            for day in (date(year, 2, 29) if _leap(year) else None, date(year, 1, 1))
            if day is not None and CronSim(cron, ANCHOR).match_day(day)
            if day.month in CronSim(cron, ANCHOR).months
        ]
        assert named
        assert max(b - a for a, b in pairwise(named)) <= 40


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def field(low: int, high: int, *more: str) -> st.SearchStrategy[str]:
    one = st.integers(low, high)
    range_ = st.tuples(one, one).map(lambda ends: f"{min(ends)}-{max(ends)}")
    step = st.tuples(st.one_of(st.just("*"), range_), st.integers(1, high)).map(
        lambda each: f"{each[0]}/{each[1]}"
    )
    some: list[st.SearchStrategy[str]] = [st.just("*"), one.map(str), range_, step]
    if more:
        some.append(st.sampled_from(more))
    listed = st.lists(st.one_of(*some[1:]), min_size=1, max_size=3).map(",".join)
    return st.one_of(*some, listed)


EXPRESSIONS = st.tuples(
    st.one_of(st.just(""), field(0, 59)),
    field(0, 59),
    field(0, 23),
    field(1, 31, "L", "LW"),
    field(1, 12, "feb", "jun-sep"),
    field(0, 6, "1#2", "5L", "mon", "tue-thu", "0#5"),
).map(lambda parts: " ".join(parts).strip())

MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1))  # noqa: DTZ001 - in UTC


@settings(max_examples=300)
@given(cron=EXPRESSIONS, moment=MOMENTS)
@example(cron="0 0 29 2 *", moment=datetime(2096, 3, 1))  # noqa: DTZ001
@example(cron="* * 30 feb *", moment=datetime(2000, 1, 1))  # noqa: DTZ001
def test_cron_times_in_utc_equal_those_of_cronsim(cron: str, moment: datetime) -> None:
    try:
        expected = [each.replace(tzinfo=UTC) for each in islice(CronSim(cron, moment), 4)]
    except CronSimError:
        expected = []  # 30 February does not exist
    try:
        timetable = Timetable(cron)
    except ArgumentError:
        assert not expected
        return
    begin = moment.replace(tzinfo=UTC)

    assert upcoming(timetable, begin, ANCHOR, 4) == expected
    assert timetable.describe()
    for number, tick in enumerate(expected):
        assert timetable.latest(tick, ANCHOR) == tick
        assert timetable.count(begin, tick, ANCHOR) == number + 1
        before = timetable.latest(tick - MOMENT, ANCHOR)
        assert before is not None
        assert before == expected[number - 1] if number else before <= begin


@given(cron=EXPRESSIONS, moment=MOMENTS, share=st.floats(0, 1))
def test_cron_from_any_moment_between_ticks_gives_same_neighbours(
    cron: str, moment: datetime, share: float
) -> None:
    try:
        timetable = Timetable(cron, "Europe/Berlin")
    except ArgumentError:
        assume(False)
    begin = moment.replace(tzinfo=UTC)
    first, second = upcoming(timetable, begin, ANCHOR, 2)
    between = first + (second - first - MOMENT) * share

    assert begin < first < second
    assert timetable.after(between, ANCHOR) == second
    assert timetable.latest(between, ANCHOR) == first
    assert timetable.count(begin, between, ANCHOR) == 1


def test_timetable_converts_times_of_any_zone_to_utc() -> None:
    timetable = Timetable("30 2 * * *", "Europe/Berlin")
    moment = datetime(2026, 7, 1, 9, tzinfo=timezone(timedelta(hours=9)))

    found = timetable.after(moment, ANCHOR)

    assert found == at("2026-07-01 00:30")
    assert found.tzinfo is UTC


# Intervals, and single times


@given(
    every=st.one_of(st.floats(0.1, 1e7), st.sampled_from([0.1, 1 / 3, 1.0, 3600.0])),
    far=st.integers(-(10**9), 10**9),
    micro=st.integers(0, 10**6),
)
def test_every_ticks_at_equal_steps_before_and_after_anchor(
    every: float, far: int, micro: int
) -> None:
    timetable = Timetable(every=every)
    period = timedelta(seconds=every)
    moment = ANCHOR + timedelta(seconds=far, microseconds=micro)

    following = timetable.after(moment, ANCHOR)
    last = timetable.latest(moment, ANCHOR)

    assert following is not None
    assert last is not None
    assert last <= moment < following
    assert following - last == period
    assert (following - ANCHOR) % period == timedelta(0)
    assert timetable.latest(last, ANCHOR) == last
    assert timetable.count(last, following + 7 * period, ANCHOR) == 8


def test_timetable_single_time_ticks_once() -> None:
    moment = at("2026-05-01 12:00")
    timetable = Timetable(at=moment.astimezone(timezone(timedelta(hours=2))))

    assert upcoming(timetable, moment - MOMENT, ANCHOR, 5) == [moment]
    assert timetable.after(moment, ANCHOR) is None
    assert timetable.latest(moment, ANCHOR) == moment
    assert timetable.latest(moment - MOMENT, ANCHOR) is None
    assert timetable.count(ANCHOR, moment, ANCHOR) == 1
    assert timetable.count(moment, moment + timedelta(days=9), ANCHOR) == 0


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ({}, "pass one of a cron expression"),
        ({"cron": "@daily", "every": 60}, "pass one of a cron expression"),
        ({"every": 0.05}, "every is 0.05 s; it can be 0.1 s"),
        ({"every": float("nan")}, "every is nan s"),
        ({"every": float("inf")}, "to ten years"),
        ({"every": -1}, "every is -1 s"),
        ({"at": datetime(2026, 1, 1)}, "has no time zone; datetime"),  # noqa: DTZ001
    ],
)
def test_timetable_invalid_arguments_are_refused(when: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        Timetable(**when)


# Zones


@pytest.mark.parametrize(
    "name",
    [
        *("Mars/Olympus", "", "Europe", "Europe/Paris ", "../../etc/passwd", "/etc/localtime"),
        *("a\0b", "x" * 5000, "é", "right/Europe/Berlin", "posix/Europe/Berlin", "localtime"),
    ],
)
def test_timetable_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="tz: there is no time zone called"):
        Timetable("@daily", name)


def test_timetable_zone_object_is_refused() -> None:
    paris: Any = zoneinfo.ZoneInfo("Europe/Paris")
    with pytest.raises(ArgumentError, match="tz is a name, such as 'Europe/Paris'"):
        Timetable("@daily", paris)


@pytest.fixture
def no_zones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulate a machine without a time zone database."""
    for name in [name for name in sys.modules if name.split(".")[0] == "tzdata"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    module.load_zone.cache_clear()
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()
    module.load_zone.cache_clear()


@pytest.mark.usefixtures("no_zones")
def test_timetable_without_zone_database_supports_only_utc() -> None:
    with pytest.raises(ArgumentError, match="no time zone database; `pip install tzdata`"):
        Timetable("@daily", "Europe/Paris")

    assert Timetable("@daily").after(ANCHOR, ANCHOR) == at("2026-01-02 00:00")


def test_tzdata_dependency_provides_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    zoneinfo.reset_tzpath(to=[])
    try:
        paris = zoneinfo.ZoneInfo.no_cache("Europe/Paris")
    finally:
        zoneinfo.reset_tzpath()

    assert ANCHOR.astimezone(paris).utcoffset() == timedelta(hours=1)


# Descriptions


@pytest.mark.parametrize(
    ("timetable", "words"),
    [
        (
            Timetable("30 2 * * mon-fri", "Europe/Paris"),
            "At 02:30 on Monday through Friday (Europe/Paris)",
        ),
        (Timetable("@daily"), "At 00:00 every day (UTC)"),
        (Timetable("*/10 * * * * *"), "Every 10th second of every minute (UTC)"),
        (Timetable(every=60), "Every minute"),
        (Timetable(every=0.5), "Every 0.5 seconds"),
        (Timetable(every=5400), "Every 1 hour 30 minutes"),
        (Timetable(every=7 * 86400), "Every 7 days"),
        (Timetable(at=at("2026-05-01 12:00")), "Once, at 2026-05-01 12:00:00+00:00"),
    ],
    ids=str,
)
def test_timetable_describe_returns_plain_words(timetable: Timetable, words: str) -> None:
    assert timetable.describe() == words


# Speed

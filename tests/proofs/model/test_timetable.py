"""Duration of computing ticks."""

from __future__ import annotations

import random
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.model.timetable import Timetable

ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)


def median(call: Any, moments: list[datetime]) -> float:
    took = []
    for moment in moments:
        began = time.perf_counter()
        call(moment)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/15 * * * *", "0 9 * * mon-fri", "@monthly"])
def test_cron_next_tick_is_found_within_100_microseconds(cron: str) -> None:
    timetable = Timetable(cron, "Europe/Berlin")
    chance = random.Random(cron)
    moments = [ANCHOR + timedelta(seconds=chance.randrange(10**8)) for _ in range(1000)]

    assert median(lambda moment: timetable.after(moment, ANCHOR), moments) < 100e-6


def test_cron_year_of_minutes_is_counted_within_20_milliseconds() -> None:
    timetable = Timetable("* * * * *", "Europe/Berlin")
    year = timedelta(days=365)
    moments = [ANCHOR + year + timedelta(days=each) for each in range(20)]

    assert timetable.count(ANCHOR, ANCHOR + year, ANCHOR) == year / timedelta(minutes=1)
    assert median(lambda moment: timetable.latest(moment, ANCHOR), moments) < 1e-3
    assert median(lambda moment: timetable.count(moment - year, moment, ANCHOR), moments) < 20e-3

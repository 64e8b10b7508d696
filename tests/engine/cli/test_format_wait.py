"""Progress of a job in words, for any pair of numbers."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.format import wait
from rota.store.read.job_detail import JobProgressRow

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("done", "total", "said"),
    [
        (0, 10, "0 %"),
        (4, 10, "40 %"),
        (999, 1000, "99 %"),
        (10, 10, "100 %"),
        (12, 10, "100 %"),
        (-1, 10, "0 %"),
        (1234, None, "1,234 done"),
        (1.5, None, "1.5 done"),
        (3, 0, "3 done"),
        (math.nan, 10, "nan done"),
        (3, math.inf, "3 done"),
    ],
)
def test_format_progress_share_is_percent_or_count(
    done: float, total: float | None, said: str
) -> None:
    assert wait.format_progress(float(done), total) == said


@given(st.floats(), st.none() | st.floats())
def test_progress_bar_any_numbers_have_constant_width(done: float, total: float | None) -> None:
    said = wait.progress_bar(JobProgressRow(NOW, done, total, None), NOW)

    drawn = sum(said.count(letter) for letter in "█░")
    assert drawn in (0, wait.BAR_WIDTH)
    assert said.endswith(", 0 s ago")


def test_progress_bar_note_is_one_line() -> None:
    said = wait.progress_bar(
        JobProgressRow(NOW, 1.0, 2.0, "two\nlines"), NOW + timedelta(seconds=3)
    )

    assert said.endswith("50 %, 1 of 2, 3 s ago: two lines")


def test_format_short_time_shows_time_today_and_date_otherwise() -> None:
    assert wait.format_short_time(NOW, NOW) == NOW.astimezone().strftime("%H:%M:%S")
    assert wait.format_short_time(NOW + timedelta(days=7), NOW) == (
        (NOW + timedelta(days=7)).astimezone().strftime("%Y-%m-%d %H:%M")
    )

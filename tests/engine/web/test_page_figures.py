"""Figures as pages print them: short, and never rounded to a better value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.store.read.metrics import BucketRow
from rota.web.dashboard.charts import (
    CHART_RANGES,
    format_depth,
    format_figure,
    format_percent,
    format_short,
    runtimes,
    sum_counts,
    time_before,
)
from rota.web.dashboard.template_helpers import render_code

THEN = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (None, None),
        (0, "0%"),
        (1, "100%"),
        (0.5, "50%"),
        (0.987, "98.7%"),
        (0.999999, "99.9%"),
        (0.000001, "0.1%"),
    ],
)
def test_format_percent_incomplete_share_is_never_0_or_100(
    share: float | None, words: str | None
) -> None:
    assert format_percent(share) == words


@pytest.mark.parametrize(
    ("value", "long", "brief"),
    [
        (0, "0", "0"),
        (0.25, "0.25", "0.25"),
        (7.53, "7.5", "7.5"),
        (150.4, "150", "150"),
        (1405, "1,405", "1.4k"),
        (20000, "20,000", "20k"),
        (3.2e6, "3,200,000", "3.2M"),
    ],
)
def test_format_figure_and_short_keep_significant_digits(
    value: float, long: str, brief: str
) -> None:
    assert (format_figure(value), format_short(value)) == (long, brief)


def test_format_depth_estimate_is_rounded_and_marked() -> None:
    assert format_depth(19_999) == "19,999"
    assert format_depth(36_412).startswith("≈")
    assert format_depth(36_412).endswith("36,000")


def test_time_before_is_rounded_to_seconds() -> None:
    assert time_before(THEN, 0.0) is None
    assert time_before(THEN + timedelta(milliseconds=700), 60.2) == THEN - timedelta(seconds=60)


def bucket_row(minute: int, **counts: float) -> BucketRow:
    given = dict.fromkeys(BucketRow.__struct_fields__, 0) | counts
    return BucketRow(**(given | {"at": THEN + timedelta(minutes=minute)}))  # type: ignore[arg-type]


def test_sum_counts_adds_counts_and_keeps_the_maximum() -> None:
    sums = sum_counts(
        [
            bucket_row(0, succeeded=1, failed=3, attempts=4, seconds=2.0, max_seconds=9.0),
            bucket_row(1, succeeded=2, attempts=1, seconds=3.0, max_seconds=1.0),
        ]
    )

    assert (sums.succeeded, sums.success_rate, sums.mean_seconds, sums.max_seconds) == (
        3,
        0.5,
        1.0,
        9.0,
    )


def test_runtimes_chart_minutes_without_attempts_have_no_line() -> None:
    span = CHART_RANGES["1h"]
    many = [bucket_row(minute) for minute in range(60)]
    many[10] = bucket_row(10, attempts=2, seconds=1.0, max_seconds=0.8)

    picture = runtimes(span, many)

    assert "longest 800 ms now, at most 800 ms; mean 500 ms now, at most 500 ms" in picture
    assert picture.count('class="dot"') == 2
    assert 'class="line"' not in picture


@pytest.mark.parametrize(
    ("words", "html"),
    [
        ("see `rota doctor` & co", "see <code>rota doctor</code> &amp; co"),
        ("`<b>`, `x`", "<code>&lt;b&gt;</code>, <code>x</code>"),
        ("a ` alone <i>", "a ` alone &lt;i&gt;"),
    ],
)
def test_render_code_marks_code_and_escapes_html(words: str, html: str) -> None:
    assert render_code(words) == html

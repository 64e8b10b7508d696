"""Plots of figures over time: well-formed, to scale, with a text alternative."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.drawing.charts import (
    DURATION_MARKS_SECONDS,
    PLOT_BOTTOM,
    TOP,
    ChartBuckets,
    ChartSeries,
    bar_chart,
    line_chart,
    log_marks,
    sparkline,
    tick_values,
)

NS = "{http://www.w3.org/2000/svg}"
BEGIN = datetime(2026, 11, 16, 14, 1, tzinfo=UTC)

values = some.lists(
    some.none() | some.floats(0, 1e15, allow_nan=False, allow_subnormal=False),
    min_size=1,
    max_size=40,
)


def buckets(many: int, step: float = 60.0) -> ChartBuckets:
    return ChartBuckets(BEGIN, step, many)


def format_number(value: float) -> str:
    return f"{value:g}"


def elements_of_class(picture: str, kind: str) -> list[ET.Element]:
    return [
        each for each in ET.fromstring(picture).iter() if kind in (each.get("class") or "").split()
    ]


def label(picture: str) -> str:
    return ET.fromstring(picture).get("aria-label", "")


def titles(picture: str) -> list[str]:
    return [each.findtext(f"{NS}title") or "" for each in elements_of_class(picture, "look")]


@given(some.floats(1e-9, 1e18), some.integers(2, 8))
def test_tick_values_are_round_few_and_cover_the_maximum(largest: float, most: int) -> None:
    found = tick_values(largest, most)

    assert found[0] == 0
    assert found[-1] >= largest * 0.99999
    assert 2 <= len(found) <= most + 1
    step = found[1]
    digits = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert any(math.isclose(digits, each, rel_tol=1e-6) for each in (1, 2, 5, 10))


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (0, [0, 1]),
        (1, [0, 0.5, 1]),
        (3, [0, 1, 2, 3]),
        (10, [0, 5, 10]),
        (11, [0, 5, 10, 15]),
        (100, [0, 50, 100]),
        (437, [0, 200, 400, 600]),
    ],
)
def test_tick_values_match_expected_examples(largest: float, expected: list[float]) -> None:
    assert tick_values(largest) == pytest.approx(expected)


def test_tick_values_of_counts_are_integers() -> None:
    assert tick_values(2, integers=True) == [0, 1, 2]
    assert tick_values(1, integers=True) == [0, 1]
    assert tick_values(437, integers=True) == tick_values(437)
    picture = line_chart(
        buckets(2),
        [ChartSeries("queued", [1, 2])],
        title="t",
        format_value=format_number,
        empty="-",
        integers=True,
    )
    assert [each.text for each in elements_of_class(picture, "tick")][:3] == ["0", "1", "2"]


@given(some.floats(0, 1e9), some.floats(0, 1e9))
def test_log_marks_enclose_the_given_range(one: float, other: float) -> None:
    least, largest = sorted((one, other))
    found = log_marks(least, largest)

    assert len(found) >= 2
    assert set(found) <= set(DURATION_MARKS_SECONDS)
    assert found[0] <= least or found[0] == DURATION_MARKS_SECONDS[0]
    assert (
        found[-1] >= largest
        or found[-1] == DURATION_MARKS_SECONDS[-1]
        or found[0] == DURATION_MARKS_SECONDS[-2]
    )


@given(values, values, some.text(), some.booleans())
def test_charts_any_values_and_text_give_well_formed_svg(
    one: list[float | None], other: list[float | None], words: str, durations: bool
) -> None:
    many = min(len(one), len(other))
    series = [ChartSeries(words, one[:many], "mean"), ChartSeries("other", other[:many], "longest")]

    pictures = (
        bar_chart(buckets(many), series, title=words, format_value=format_number, empty=words),
        line_chart(
            buckets(many),
            series,
            title=words,
            format_value=format_number,
            empty=words,
            durations=durations,
        ),
        sparkline(series[0], title=words, format_value=format_number),
    )

    for picture in pictures:
        root = ET.fromstring(picture)
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert "style=" not in picture.replace(words, "")
        assert "<style" not in picture
        assert "nan" not in picture.replace(words, "")
        assert "inf" not in picture.replace(words, "")


def test_bar_chart_bars_are_to_scale_and_stacked() -> None:
    good, bad = (
        ChartSeries("succeeded", [10, 5, 0], "succeeded"),
        ChartSeries("failed", [0, 3, 0], "failed"),
    )
    other = ChartSeries("other", [0, 2, 0], "other")

    picture = bar_chart(
        buckets(3), [good, bad, other], title="Ended", format_value=format_number, empty="nothing"
    )

    [whole, half] = elements_of_class(picture, "succeeded")
    [middle] = elements_of_class(picture, "failed")
    [top] = elements_of_class(picture, "other")
    assert float(whole.get("height", 0)) == pytest.approx(PLOT_BOTTOM - TOP, abs=0.1)
    assert float(half.get("height", 0)) == pytest.approx((PLOT_BOTTOM - TOP) / 2, abs=0.1)
    for upper, lower in ((middle, half), (top, middle)):
        foot = float(upper.get("y", 0)) + float(upper.get("height", 0))
        assert foot == pytest.approx(float(lower.get("y", 0)), abs=0.11)
    assert float(top.get("y", 0)) == pytest.approx(TOP, abs=0.1)
    assert float(whole.get("x", 0)) < float(half.get("x", 0)) == float(top.get("x", 0))


def test_bar_chart_single_failure_beside_a_million_is_visible() -> None:
    series = [ChartSeries("ok", [1e6, 1e6], "succeeded"), ChartSeries("bad", [0, 1], "failed")]

    [bar] = elements_of_class(
        bar_chart(buckets(2), series, title="t", format_value=format_number, empty="-"), "failed"
    )

    assert float(bar.get("height", 0)) >= 1.5


def test_bar_chart_only_last_bucket_is_open() -> None:
    picture = bar_chart(
        buckets(3),
        [ChartSeries("ok", [1, 1, 1], "succeeded")],
        title="t",
        format_value=format_number,
        empty="-",
    )

    assert ["open" in (bar.get("class") or "") for bar in elements_of_class(picture, "pile")] == [
        0,
        0,
        1,
    ]
    assert titles(picture) == ["14:01 UTC\nok 1", "14:02 UTC\nok 1", "14:03 UTC, so far\nok 1"]


def test_line_chart_missing_values_are_a_gap() -> None:
    picture = line_chart(
        buckets(6),
        [ChartSeries("queued", [1, 2, None, None, 3, 4])],
        title="t",
        format_value=format_number,
        empty="-",
    )

    assert len(elements_of_class(picture, "line")) == 2
    assert titles(picture)[2] == "14:03 UTC\nqueued not known"
    alone = line_chart(
        buckets(3),
        [ChartSeries("queued", [None, 2, None])],
        title="t",
        format_value=format_number,
        empty="-",
    )
    assert len(elements_of_class(alone, "dot")) == 1
    assert not elements_of_class(alone, "line")


def test_line_chart_of_durations_has_logarithmic_scale() -> None:
    series = [ChartSeries("mean", [0.001, 0.01, 0.1, 1.0], "mean")]

    [line] = elements_of_class(
        line_chart(
            buckets(4), series, title="t", format_value=format_number, empty="-", durations=True
        ),
        "line",
    )

    heights = [float(pair.split()[1]) for pair in line.get("d", "")[1:].split("L")]
    steps = [before - after for before, after in pairwise(heights)]
    assert heights[0] == pytest.approx(PLOT_BOTTOM, abs=0.1)
    assert heights[-1] == pytest.approx(TOP, abs=0.1)
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)


def test_charts_without_values_show_the_empty_text() -> None:
    for picture in (
        bar_chart(
            buckets(3),
            [ChartSeries("ok", [0, 0, 0])],
            title="Ended",
            format_value=format_number,
            empty="nothing ended",
        ),
        line_chart(
            buckets(3),
            [ChartSeries("m", [None] * 3)],
            title="Ended",
            format_value=format_number,
            empty="nothing ended",
        ),
    ):
        [words] = elements_of_class(picture, "nothing")
        assert words.text == "nothing ended"
        assert label(picture) == "Ended: nothing ended"
        assert not elements_of_class(picture, "pile")
        assert not elements_of_class(picture, "line")


def test_charts_aria_label_has_current_and_maximum_values() -> None:
    series = [ChartSeries("mean", [1, 7, 3]), ChartSeries("longest", [2, 9, None])]

    picture = line_chart(
        buckets(3), series, title="Waits", format_value=lambda value: f"{value:g} s", empty="-"
    )

    assert label(picture) == "Waits: mean 3 s now, at most 7 s; longest 9 s now, at most 9 s"
    small = sparkline(series[0], title="Depth", format_value=format_number)
    assert label(small) == "Depth: 3 now, at most 7"
    assert (
        label(sparkline(ChartSeries("x", [None]), title="Depth", format_value=format_number))
        == "Depth: nothing is known"
    )


@pytest.mark.parametrize(
    ("many", "step", "expected"),
    [
        (60, 60.0, ["now", "15 min", "30 min", "45 min", "1 h ago"]),
        (72, 300.0, ["now", "2 h", "4 h", "6 h ago"]),
        (96, 900.0, ["now", "6 h", "12 h", "18 h", "24 h ago"]),
    ],
)
def test_line_chart_time_axis_shows_age(many: int, step: float, expected: list[str]) -> None:
    picture = line_chart(
        buckets(many, step),
        [ChartSeries("x", [1.0] * many)],
        title="t",
        format_value=format_number,
        empty="-",
    )

    words = [each.text for each in elements_of_class(picture, "tick")]
    assert words[-len(expected) :] == expected

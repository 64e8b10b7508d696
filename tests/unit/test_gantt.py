"""Timeline: short bars stay visible, and bars of different kinds differ in appearance."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.drawing.gantt import (
    HEADER_HEIGHT,
    MAX_TICKS,
    MIN_BAR_WIDTH,
    NAMES_WIDTH,
    ROW_HEIGHT,
    WIDTH,
    BarKind,
    GanttBar,
    GanttRow,
    gantt,
)

START = datetime(2026, 11, 16, 12, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def drawn(*bars: GanttBar, end: float = 100.0, **how: object) -> ET.Element:
    row = GanttRow("a", "extract", "succeeded", bars)
    return ET.fromstring(gantt([row], START, after(end), **how))  # type: ignore[arg-type]


def bars(picture: ET.Element) -> list[ET.Element]:
    return [each for each in picture.iter(f"{SVG}rect") if "stretch" in each.get("class", "")]


def test_gantt_bar_position_and_width_match_its_times() -> None:
    [bar] = bars(drawn(GanttBar("running", after(25), after(75), "succeeded")))

    whole = WIDTH - NAMES_WIDTH - 16
    assert float(bar.get("x", "")) == pytest.approx(NAMES_WIDTH + whole / 4, abs=0.1)
    assert float(bar.get("width", "")) == pytest.approx(whole / 2, abs=0.1)


@given(some.floats(0, 1e9), some.floats(0, 1e9), some.floats(0.001, 1e9))
def test_gantt_every_bar_is_visible_and_inside_picture(
    start: float, long: float, end: float
) -> None:
    [bar] = bars(drawn(GanttBar("running", after(start), after(start + long)), end=end))

    left, wide = float(bar.get("x", "")), float(bar.get("width", ""))
    assert wide >= MIN_BAR_WIDTH
    assert left >= NAMES_WIDTH - MIN_BAR_WIDTH
    assert left + wide <= WIDTH


def test_gantt_bar_kinds_differ_in_height_and_fill() -> None:
    kinds: list[BarKind] = ["queued", "running", "sleeping", "attempt"]

    made = bars(drawn(*(GanttBar(kind, after(1), after(2)) for kind in kinds)))

    looks = {(each.get("height"), each.get("fill"), each.get("class")) for each in made}
    assert len({height for height, _, _ in looks}) == 4
    assert [each.get("fill") for each in made if "of-sleeping" in each.get("class", "")] == [
        "url(#gantt-stripes)"
    ]


def test_gantt_running_bar_is_drawn_over_queued_bar() -> None:
    made = bars(
        drawn(GanttBar("running", after(1), after(2)), GanttBar("queued", after(0), after(1)))
    )

    assert ["of-queued" in each.get("class", "") for each in made] == [True, False]


@given(some.floats(0.001, 3e9))
def test_gantt_axis_has_limited_distinct_ticks(seconds: float) -> None:
    picture = drawn(end=seconds)

    marks = [each.text or "" for each in picture.iter(f"{SVG}text") if each.get("class") is None]
    assert 1 <= len(marks) <= MAX_TICKS + 1
    assert len(set(marks)) == len(marks)
    assert marks[0] == "0"


def test_gantt_axis_label_precision_follows_duration() -> None:
    def last(seconds: float) -> str:
        return [each.text or "" for each in drawn(end=seconds).iter(f"{SVG}text")][-2]

    assert last(0.02) == "0.02 s"
    assert last(40) == "40 s"
    assert last(150) == "2:30 min"
    assert last(4 * 3600) == "4:00 h"
    assert last(40 * 3600) == "1 d 12 h"


def test_gantt_rows_are_links_and_selected_row_is_marked() -> None:
    rows = [GanttRow(str(n), f"job {n}", "running", [], f"?job={n}") for n in range(5)]

    picture = ET.fromstring(gantt(rows, START, after(1), selected="3", now=after(0.5)))

    links = [each for each in picture.iter(f"{SVG}a")]
    assert [each.get("href") for each in links] == [f"?job={n}" for n in range(5)]
    assert [each.get("aria-current") for each in links] == [None, None, None, "true", None]
    assert float(picture.get("height", "")) >= HEADER_HEIGHT + 5 * ROW_HEIGHT
    assert "now" in {each.get("class") for each in picture.iter(f"{SVG}path")}


def test_gantt_names_and_hints_with_markup_are_escaped() -> None:
    name = '</title><script>alert("x")</script>\x00'
    text = gantt(
        [GanttRow(name, name, "", [GanttBar("running", START, START, "", name)])], START, START
    )

    ET.fromstring(text)
    assert "<script" not in text
    assert re.search("style=|<style", text) is None

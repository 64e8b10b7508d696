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


def test_a_bar_lies_where_its_times_are() -> None:
    [bar] = bars(drawn(GanttBar("running", after(25), after(75), "succeeded")))

    whole = WIDTH - NAMES_WIDTH - 16
    assert float(bar.get("x", "")) == pytest.approx(NAMES_WIDTH + whole / 4, abs=0.1)
    assert float(bar.get("width", "")) == pytest.approx(whole / 2, abs=0.1)


@given(some.floats(0, 1e9), some.floats(0, 1e9), some.floats(0.001, 1e9))
def test_every_bar_can_be_seen_and_lies_within_the_picture(
    start: float, long: float, end: float
) -> None:
    [bar] = bars(drawn(GanttBar("running", after(start), after(start + long)), end=end))

    left, wide = float(bar.get("x", "")), float(bar.get("width", ""))
    assert wide >= MIN_BAR_WIDTH
    assert left >= NAMES_WIDTH - MIN_BAR_WIDTH
    assert left + wide <= WIDTH


def test_waiting_running_sleeping_and_earlier_attempts_differ_by_shape() -> None:
    kinds: list[BarKind] = ["queued", "running", "sleeping", "attempt"]

    made = bars(drawn(*(GanttBar(kind, after(1), after(2)) for kind in kinds)))

    looks = {(each.get("height"), each.get("fill"), each.get("class")) for each in made}
    assert len({height for height, _, _ in looks}) == 4
    assert [each.get("fill") for each in made if "of-sleeping" in each.get("class", "")] == [
        "url(#gantt-stripes)"
    ]


def test_what_runs_is_drawn_over_what_waited() -> None:
    made = bars(
        drawn(GanttBar("running", after(1), after(2)), GanttBar("queued", after(0), after(1)))
    )

    assert ["of-queued" in each.get("class", "") for each in made] == [True, False]


@given(some.floats(0.001, 3e9))
def test_the_axis_is_never_crowded_and_never_empty(seconds: float) -> None:
    picture = drawn(end=seconds)

    marks = [each.text or "" for each in picture.iter(f"{SVG}text") if each.get("class") is None]
    assert 1 <= len(marks) <= MAX_TICKS + 1
    assert len(set(marks)) == len(marks)
    assert marks[0] == "0"


def test_times_on_the_axis_are_said_as_finely_as_they_lie_apart() -> None:
    def last(seconds: float) -> str:
        return [each.text or "" for each in drawn(end=seconds).iter(f"{SVG}text")][-2]

    assert last(0.02) == "0.02 s"
    assert last(40) == "40 s"
    assert last(150) == "2:30 min"
    assert last(4 * 3600) == "4:00 h"
    assert last(40 * 3600) == "1 d 12 h"


def test_a_line_for_each_row_and_the_chosen_one_is_marked() -> None:
    rows = [GanttRow(str(n), f"job {n}", "running", [], f"?job={n}") for n in range(5)]

    picture = ET.fromstring(gantt(rows, START, after(1), selected="3", now=after(0.5)))

    links = [each for each in picture.iter(f"{SVG}a")]
    assert [each.get("href") for each in links] == [f"?job={n}" for n in range(5)]
    assert [each.get("aria-current") for each in links] == [None, None, None, "true", None]
    assert float(picture.get("height", "")) >= HEADER_HEIGHT + 5 * ROW_HEIGHT
    assert "now" in {each.get("class") for each in picture.iter(f"{SVG}path")}


def test_names_and_hints_are_text_whatever_is_in_them() -> None:
    name = '</title><script>alert("x")</script>\x00'
    text = gantt(
        [GanttRow(name, name, "", [GanttBar("running", START, START, "", name)])], START, START
    )

    ET.fromstring(text)
    assert "<script" not in text
    assert re.search("style=|<style", text) is None

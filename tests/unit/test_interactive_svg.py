"""Graph on a page: its layout does not depend on the jobs' states, and every job has a link."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

import pytest

from rota.drawing.interactive_svg import (
    INSET,
    MIN_SHARE_WIDTH,
    NodeDetails,
    draw_edges,
    interactive_svg,
    layout_boxes,
)
from rota.drawing.label import STATES
from rota.model.graph import Graph
from support.graphs import DIAMOND

SVG = "{http://www.w3.org/2000/svg}"


def draw(cards: Mapping[str, NodeDetails], graph: Graph = DIAMOND, chosen: str = "") -> ET.Element:
    made = layout_boxes(graph, {key: card.name for key, card in cards.items()})
    between = draw_edges(made, [("a", "b")])
    return ET.fromstring(interactive_svg(made, cards, edges_svg=between, selected=chosen))


def details_of_jobs(state: str = "", remark: str = "") -> dict[str, NodeDetails]:
    return {
        name: NodeDetails(f"job {name}", state, remark, href=f"?job={name}")
        for name in DIAMOND.order
    }


def jobs(picture: ET.Element) -> list[ET.Element]:
    return [each for each in picture.iter(f"{SVG}a")]


def test_graph_boxes_keep_place_and_width_in_every_job_state() -> None:
    def places(picture: ET.Element) -> list[tuple[str | None, ...]]:
        boxes = [each.find(f"{SVG}rect") for each in jobs(picture)]
        return [
            (each.get("data-key"), each.get("transform"), box.get("width"))
            for each, box in zip(jobs(picture), boxes, strict=True)
            if box is not None
        ]

    before = places(draw(details_of_jobs("waiting", "waiting")))

    assert len(before) == 4
    for state in STATES:
        assert (
            places(draw(details_of_jobs(state, f"{state} · attempt 12, and a very long remark")))
            == before
        )


def test_graph_box_is_link_with_state_class_icon_and_text() -> None:
    picture = draw(details_of_jobs("failed", "failed · attempt 3"))

    for job in jobs(picture):
        assert job.get("class") == "job failed"
        assert job.get("href") == f"?job={job.get('data-key')}"
        assert [each.get("href") for each in job.iter(f"{SVG}use")] == ["#i-state-failed"]
        assert "failed · attempt 3" in "".join(job.itertext())


def test_graph_box_long_remark_is_cut_and_full_in_title() -> None:
    remark = "asleep · for a signal with a name that nobody can read at a glance"

    job = jobs(draw(details_of_jobs("sleeping", remark)))[0]

    [line] = [each for each in job.iter(f"{SVG}text") if each.get("class") == "remark"]
    assert line.text is not None
    assert line.text.endswith("…")
    assert len(line.text) <= int(line.get("data-most", ""))
    assert remark in (job.findtext(f"{SVG}title") or "")


def test_graph_edge_without_data_has_after_class_and_both_ends() -> None:
    paths = [each for each in draw(details_of_jobs()).iter(f"{SVG}path") if each.get("data-from")]

    ends = {(each.get("data-from"), each.get("data-to")): each.get("class") for each in paths}
    assert ends == {("a", "b"): "after", ("a", "c"): None, ("b", "d"): None, ("c", "d"): None}


def test_graph_selected_box_is_marked_current() -> None:
    found = [each.get("aria-current") for each in jobs(draw(details_of_jobs(), chosen="c"))]

    assert found == [None, None, "true", None]


@pytest.mark.parametrize(
    "shares", [[("failed", 0.001), ("succeeded", 0.999)], [("running", 0.4)], [("failed", 1.0)]]
)
def test_graph_box_shares_fill_width_with_visible_minimum(
    shares: list[tuple[str, float]],
) -> None:
    graph = Graph({"many": []})
    picture = draw({"many": NodeDetails("many", "failed", job_count=1_000, shares=shares)}, graph)

    bars = [each for each in picture.iter(f"{SVG}rect") if "share" in each.get("class", "")]
    widths = [float(each.get("width", "")) for each in bars]
    box = next(each for each in picture.iter(f"{SVG}rect") if each.get("class") == "box")
    whole = float(box.get("width", "")) - 2 * INSET
    assert min(widths) >= MIN_SHARE_WIDTH
    assert sum(widths) == pytest.approx(whole * min(sum(n for _, n in shares), 1), abs=0.2)


def test_graph_names_with_markup_are_escaped() -> None:
    name = '</title><script>alert("x")</script>\x00" onload="x'
    made = layout_boxes(Graph({name: []}), {name: name})

    text = interactive_svg(made, {name: NodeDetails(name, "", name, name, name)}, edges_svg="")

    ET.fromstring(text)
    assert "<script" not in text
    assert re.search(r"style=|<style|onload=\"x", text) is None

"""SVG picture: well-formed and complete, with escaped user text and no external resources."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.drawing.collapse import collapse
from rota.drawing.label import STATES, NodeLabel
from rota.drawing.palette import DARK, LIGHT, Palette
from rota.drawing.svg import DARK_STYLE, svg
from rota.model.graph import Graph
from support.graphs import DIAMOND, fan, graphs

NS = "{http://www.w3.org/2000/svg}"
NASTY = ["<script>alert(1)</script>", '"quoted"', "a & b", "x]]>y", "<!--", "'", "&lt;", "日本語"]


def jobs(picture: str) -> dict[str, ET.Element]:
    """Return each job's element by the first line of its tooltip."""
    found = {}
    for group in ET.fromstring(picture).iter(f"{NS}g"):
        if group.get("class", "").startswith("job "):
            tooltip = group.findtext(f"{NS}title") or ""
            found[tooltip.split("\n")[0]] = group
    return found


def texts(group: ET.Element) -> list[str]:
    return [each.text or "" for each in group.iter(f"{NS}text")]


@given(graphs())
def test_svg_every_job_and_edge_is_drawn_once(graph: Graph) -> None:
    picture = svg(graph)

    assert list(jobs(picture)) == list(graph.order)
    edges = picture.count("receives the result of")
    assert edges == sum(len(graph.predecessors[name]) for name in graph.order)


@given(some.lists(some.text(), unique=True, max_size=5), some.text(), some.text())
def test_svg_any_text_gives_well_formed_picture(names: list[str], detail: str, error: str) -> None:
    graph = Graph({name: names[:place] for place, name in enumerate(names)})
    labels = {name: NodeLabel(detail, error, detail, error) for name in names}

    root = ET.fromstring(svg(graph, labels, title=detail, nonce=error))

    assert root.tag == f"{NS}svg"
    svg(graph, labels).encode()


@pytest.mark.parametrize("name", NASTY)
def test_svg_name_with_markup_is_escaped(name: str) -> None:
    graph = Graph({name: [], "next": [name]})

    picture = svg(graph, {name: NodeLabel("failed", name, name)}, title=name)

    assert texts(jobs(picture)[name]) == [name, f"failed · {name}"]
    assert {each.tag.removeprefix(NS) for each in ET.fromstring(picture).iter()} == {
        *("svg", "style", "rect", "g", "path", "title", "circle", "text")
    }


def test_svg_state_is_shown_as_text_class_and_colour() -> None:
    graph = Graph(dict.fromkeys(STATES, ()))

    drawn = jobs(svg(graph, {state: NodeLabel(state, "attempt 2") for state in STATES}))

    for state in STATES:
        assert drawn[state].get("class") == f"job {state}"
        assert drawn[state].get("fill") == LIGHT.states[state].fill
        assert texts(drawn[state]) == [state, f"{state} · attempt 2"]
        assert f".rota-graph .{state}{{fill:{DARK.states[state].fill}" in DARK_STYLE


def test_svg_unknown_state_is_shown_without_class() -> None:
    drawn = jobs(svg(Graph({"a": []}), {"a": NodeLabel('x" onload="alert(1)')}))

    assert drawn["a"].get("class") == "job plain"
    assert texts(drawn["a"])[1] == 'x" onload="alert(1)'


def test_svg_after_edge_is_dashed() -> None:
    root = ET.fromstring(svg(DIAMOND, after=[("a", "c")]))

    dashed = {
        path.findtext(f"{NS}title"): path.get("stroke-dasharray") is not None
        for path in root.iter(f"{NS}path")
        if path.find(f"{NS}title") is not None
    }
    assert dashed == {
        "b receives the result of a": False,
        "c comes after a": True,
        "d receives the result of b": False,
        "d receives the result of c": False,
    }


def test_svg_tooltip_has_full_name_and_error() -> None:
    name = "a_very_long_name_" * 5

    drawn = jobs(svg(Graph({name: []}), {name: NodeLabel("failed", error="ValueError: no")}))

    assert drawn[name].findtext(f"{NS}title") == f"{name}\nfailed\nValueError: no"
    assert texts(drawn[name])[0].endswith("…")
    assert len(texts(drawn[name])[0]) <= 36


def test_svg_aria_label_summarises_job_states() -> None:
    labels = {"a": NodeLabel("succeeded"), "b": NodeLabel("failed"), "c": NodeLabel("succeeded")}

    root = ET.fromstring(svg(DIAMOND, labels, title="etl"))

    assert root.get("role") == "img"
    assert root.get("aria-label") == "etl: 4 jobs, 1 failed, 2 succeeded"
    assert ET.fromstring(svg(Graph({"a": []}))).get("aria-label") == "Graph: 1 job"


def test_svg_collapsed_jobs_are_counted_and_drawn_as_pile() -> None:
    folded = collapse(fan(100), {f"part{n}": NodeLabel("succeeded") for n in range(100)})

    picture = svg(folded.graph, folded.labels)

    assert 'aria-label="Graph: 102 jobs, 100 succeeded"' in picture
    assert len(re.findall('class="under"', picture)) == 1


def test_svg_has_no_links_scripts_or_ids() -> None:
    picture = svg(fan(5), {"split": NodeLabel("running")})

    without_namespace = picture.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import|href|\bid=|style=|\bon\w+=", without_namespace)
    assert all(
        rule.startswith(".rota-graph ") for rule in re.findall(r"[.#\w-]+ [.\w ]+(?={)", DARK_STYLE)
    )


def test_svg_style_has_nonce_or_is_left_out() -> None:
    assert '<style nonce="r4nd0m">' in svg(DIAMOND, nonce="r4nd0m")

    bare = svg(DIAMOND, style=False)

    assert "<style" not in bare
    plain = LIGHT.states[""]
    assert _colours(bare) == {LIGHT.background, LIGHT.text, LIGHT.edge, plain.fill, plain.stroke}


def test_svg_dark_style_replaces_every_light_colour() -> None:
    assert DARK_STYLE.strip().startswith("@media (prefers-color-scheme: dark)")
    assert {DARK.background, DARK.edge, DARK.text} <= _colours(DARK_STYLE)
    assert DARK.states.keys() == LIGHT.states.keys() == {"", *STATES}


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["day", "night"])
def test_svg_text_contrast_meets_wcag(palette: Palette) -> None:
    """The contrast is at least 4.5 to 1, as the accessibility guidelines (WCAG) require for text."""
    for ink in palette.states.values():
        assert _contrast(ink.text, ink.fill) >= 4.5
        assert _contrast(palette.text, ink.fill) >= 4.5


@given(graphs())
def test_svg_same_graph_is_deterministic(graph: Graph) -> None:
    assert svg(graph, direction="down") == svg(Graph(dict(graph.predecessors)), direction="down")


def _colours(text: str) -> set[str]:
    return set(re.findall(r"#[0-9a-f]{6}", text))


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

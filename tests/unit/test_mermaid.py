"""Mermaid text: it has every job and edge, and escapes the special characters in names."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.drawing.label import NodeLabel
from rota.drawing.mermaid import mermaid
from rota.model.graph import Graph
from support.graphs import DIAMOND, graphs

NODE = re.compile(r' {4}n(\d+)\["([^"\n]*)"\](?::::(\w+))?')
EDGE = re.compile(r" {4}n(\d+) (-->|-\.->) n(\d+)")


def parse_mermaid(text: str) -> dict[str, set[str]]:
    """Return the predecessors of each job as Mermaid would parse them."""
    found: dict[str, set[str]] = {}
    names: list[str] = []
    for line in text.splitlines()[1:]:
        if node := NODE.fullmatch(line):
            assert int(node[1]) == len(names)
            names.append(decode_label(node[2]))
            found[names[-1]] = set()
        elif edge := EDGE.fullmatch(line):
            found[names[int(edge[3])]].add(names[int(edge[1])])
        else:
            assert line.startswith("    classDef ")
    return found


def decode_label(label: str) -> str:
    """Decode Mermaid's entities, which are HTML's with # for &#."""
    return unescape(re.sub(r"#(\d+);", r"&#\1;", label))


def test_mermaid_graph_is_a_flowchart() -> None:
    assert mermaid(DIAMOND, after=[("a", "c")]) == (
        "flowchart LR\n"
        '    n0["a"]\n'
        '    n1["b"]\n'
        '    n2["c"]\n'
        '    n3["d"]\n'
        "    n0 --> n1\n"
        "    n0 -.-> n2\n"
        "    n1 --> n3\n"
        "    n2 --> n3\n"
    )
    assert mermaid(DIAMOND, direction="down").startswith("flowchart TD\n")


def test_mermaid_states_are_classes_defined_only_if_used() -> None:
    text = mermaid(DIAMOND, {"a": NodeLabel("failed", "attempt 2"), "b": NodeLabel("succeeded")})

    assert '    n0["a<br/>failed · attempt 2"]:::failed\n' in text
    assert re.findall(r"classDef (\w+) fill:#\w{6},stroke:#\w{6},color:#\w{6}\n", text) == [
        "failed",
        "succeeded",
    ]


def test_mermaid_unknown_state_has_no_class() -> None:
    text = mermaid(Graph({"a": []}), {"a": NodeLabel("x; click n0 href")})

    assert ":::" not in text
    assert "classDef" not in text


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("load_orders", "load_orders"),
        ("shop.tasks:send-mail", "shop.tasks:send-mail"),
        ("<script>", "#60;script#62;"),
        ('say "hi"', "say #34;hi#34;"),
        ("a & b", "a #38; b"),
        ("x[0]", "x#91;0#93;"),
        ("#35;", "#35;35#59;"),
        ("`code`", "#96;code#96;"),
        ("__init__", "#95;#95;init#95;#95;"),
        ("1. first", "1#46; first"),
        ("- first", "#45; first"),
        ("two\nlines", "two lines"),
        ("a\\b", "a#92;b"),
    ],
)
def test_mermaid_special_characters_are_numeric_entities(name: str, written: str) -> None:
    assert f'["{written}"]' in mermaid(Graph({name: []}))


# HTML has no entity for code points without a character (Cn).
@given(some.text(some.characters(exclude_categories=("Cs", "Cc", "Cn", "Z")), min_size=1))
def test_mermaid_any_name_round_trips(name: str) -> None:
    graph = Graph({name: []})

    assert list(parse_mermaid(mermaid(graph))) == [name]


@given(graphs())
def test_mermaid_text_has_every_job_and_edge(graph: Graph) -> None:
    assert parse_mermaid(mermaid(graph)) == {
        name: set(graph.predecessors[name]) for name in graph.order
    }

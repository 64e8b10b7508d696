"""Every message that the troubleshooting page lists exists in the code."""

from __future__ import annotations

import ast
import re
from functools import cache

from support.failures import assert_none
from support.places import DOCS, ROOT

PAGE = (DOCS / "troubleshooting.md").read_text("utf-8")
HEADS = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)


def string_of_node(node: ast.AST) -> str | None:
    """Return a string of the code, with … in place of inserted values."""
    match node:
        case ast.Constant(value=str() as text):
            return re.sub(r"%[-.\d]*[sdrgf]", "…", text)
        case ast.JoinedStr(values=parts):
            return "".join(string_of_node(part) or "…" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (string_of_node(left) or "…") + (string_of_node(right) or "…")
    return None


@cache
def messages() -> str:
    texts = []
    for path in (ROOT / "src" / "rota").rglob("*.py"):
        texts += [
            text
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if (text := string_of_node(node))
        ]
    for path in (ROOT / "src" / "rota" / "store").rglob("*.sql"):
        texts.append(path.read_text("utf-8").replace("%", "…"))
    return "\n".join(re.sub(r"\s+", " ", text) for text in texts)


def test_troubleshooting_headings_are_messages_in_source() -> None:
    assert_none(head for head in HEADS if head not in messages())


def test_troubleshooting_has_over_40_messages() -> None:
    assert len(HEADS) > 40

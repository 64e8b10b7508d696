"""Conversion of docstrings to Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

ALIGNED = re.compile(r"^\S.*?\S {2,}\S")


def said(text: str) -> str:
    """Return a docstring as Markdown; indented lines and columns are kept."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = paragraph.splitlines()
        indented = all(line.startswith("    ") for line in lines)
        lined_up = len(lines) > 1 and bool(ALIGNED.match(lines[0]))
        if indented or lined_up:
            parts.append("```text\n" + inspect.cleandoc("\n" + paragraph) + "\n```")
        else:
            parts.append(" ".join(line.strip() for line in lines))
    return "\n\n".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def cell(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("|", "\\|")).strip()


def made(title: str, words: str, parts: Iterable[str]) -> str:
    """Return a page with a note that it is generated and must not be edited."""
    note = "<!-- Made by `python -m tools.reference`; mend what it is made from. -->"
    return "\n\n".join([note, f"# {title}", words, *parts]).rstrip() + "\n"

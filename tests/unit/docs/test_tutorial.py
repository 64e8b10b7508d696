"""The tutorial, followed step by step: its programs, its commands, and the worker that is killed."""

from __future__ import annotations

from support.doc_pages import blocks
from support.places import DOCS, ROOT

PAGE = DOCS / "tutorial.md"


def test_tutorial_programs_equal_example_files() -> None:
    """The page takes its programs from there only."""
    shown = list(blocks(PAGE, "python"))
    files = [
        (ROOT / "examples" / "tutorial" / name).read_text("utf-8")
        for name in ("greet.py", "bakery.py")
    ]
    assert len(shown) == 3
    assert all(any(code.strip("\n") in file for file in files) for code in shown)

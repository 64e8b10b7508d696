"""The public surface is as the golden files say: names, parameters, fields, types."""

from __future__ import annotations

import difflib

import pytest
from tools.surface import GOLDEN, SURFACES, facts


@pytest.mark.parametrize("surface", SURFACES)
def test_surface_equals_its_golden_file(surface: str) -> None:
    """After a wanted change, `python -m tools.surface` rewrites the files."""
    golden = (GOLDEN / f"{surface}.txt").read_text("utf-8").splitlines()
    found = facts(surface).splitlines()
    assert "\n".join(difflib.unified_diff(golden, found, lineterm="", n=0)) == ""

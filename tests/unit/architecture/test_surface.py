"""The public surface equals the golden files: names, parameters, fields, types."""

from __future__ import annotations

import difflib

from tools.surface import GOLDEN, SURFACES, facts

from support.failures import assert_none


def test_surfaces_equal_their_golden_files() -> None:
    """After an intended change, `python -m tools.surface` rewrites the files."""
    differences: list[str] = []
    for surface in SURFACES:
        golden = (GOLDEN / f"{surface}.txt").read_text("utf-8").splitlines()
        found = facts(surface).splitlines()
        differences += difflib.unified_diff(golden, found, surface, surface, lineterm="", n=0)

    assert_none(differences, "If the change is intended: python -m tools.surface")


def test_surface_renames_map_absent_facts_to_existing_ones() -> None:
    """`renames.tsv` lists the facts that had another name in the first version: surface, old fact, new
    fact."""
    rows = [row.split("\t") for row in (GOLDEN / "renames.tsv").read_text("utf-8").splitlines()]
    facts_of = {
        each: set((GOLDEN / f"{each}.txt").read_text("utf-8").splitlines()) for each in SURFACES
    }
    assert [row for row in rows if row[1] in facts_of[row[0]]] == []
    assert [row for row in rows if row[2] not in facts_of[row[0]]] == []

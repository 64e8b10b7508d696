"""Every test and file named in `phases.PARTS` exists: a misspelt name would select no test."""

from __future__ import annotations

import ast
import re

import pytest

from phases import PARTS
from support.places import ROOT


@pytest.mark.parametrize("name", [name for part in PARTS.values() for name in part])
def test_phase_entry_names_an_existing_test(name: str) -> None:
    path, _, test = name.partition("::")
    assert (ROOT / path).exists()
    if test:
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        names = [each.name for each in ast.walk(tree) if isinstance(each, functions)]
        assert any(each.startswith(test.partition("[")[0]) for each in names)


def test_phase_marks_are_set_only_by_conftest() -> None:
    """The files of a part are derived from its names, so a test with only a mark would never run."""
    says = re.compile(r"\bmark\.(crowd|alone|browser)\b")
    conftest = ROOT / "tests" / "conftest.py"
    files = [each for each in (ROOT / "tests").rglob("*.py") if each != conftest]
    assert [each.name for each in files if says.search(each.read_text("utf-8"))] == []

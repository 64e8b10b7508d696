"""The folders of tests/ are the phases of the run; the Makefile names them."""

from __future__ import annotations

import re

from support.places import ROOT, SUPPORT, TESTS

PHASES = ("unit", "store", "engine", "process", "browser", "proofs")


def test_test_modules_stand_in_the_folder_of_a_phase() -> None:
    """A module elsewhere would be collected by no phase."""
    modules = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]

    assert len(modules) > 300
    assert [path.as_posix() for path in modules if path.parts[0] not in PHASES] == []


def test_test_folders_are_all_run_by_make() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    test = makefile.partition("\ntest:")[2].partition("\ntest-fast:")[0]
    proofs = makefile.partition("\nproofs:")[2].partition("\n\n")[0]

    assert [phase for phase in PHASES[:-1] if f"tests/{phase}" not in test] == []
    assert "tests/proofs" in proofs
    assert "tests/proofs" not in test


def test_support_modules_contain_no_tests() -> None:
    defines = re.compile(r"^(async )?def test_", re.MULTILINE)

    assert [
        path.relative_to(TESTS).as_posix()
        for path in SUPPORT.rglob("*.py")
        if defines.search(path.read_text("utf-8"))
    ] == []


def test_test_packages_have_an_init_file() -> None:
    """Without one, two modules of one name would be one module."""
    folders = {path.parent for path in TESTS.rglob("test_*.py")}

    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_helpers_are_imported_from_support_only() -> None:
    """A conftest may be imported by no module; a test module only for its tests."""
    imports = re.compile(
        r"^from ((?:unit|store|engine|process|browser|proofs)\b\S*) import", re.MULTILINE
    )
    found = [
        f"{path.relative_to(TESTS)}: {module}"
        for path in TESTS.rglob("*.py")
        for module in imports.findall(path.read_text("utf-8"))
    ]

    assert found == ["store/test_leader_mistakes.py: store"]
